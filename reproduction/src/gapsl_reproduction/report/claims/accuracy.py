"""Claims about accuracy: who is best, IID and not."""

from __future__ import annotations

from collections.abc import Sequence

from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.comparing import RIVALS, ahead, difference_part
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import accuracy, by_seed
from gapsl_reproduction.report.naming import DATASETS, PARTITIONS, line_name
from gapsl_reproduction.report.spread import Values, minus


def highest(workload: str, partition: str) -> Claim:
    """Return the claim that GAPSL is the most accurate somewhere."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        gapsl = Place("gapsl", workload, partition)
        return [ahead(evidence, gapsl, Place(rival, workload, partition)) for rival in RIVALS]

    where = f"{DATASETS[workload]} {PARTITIONS[partition]}"
    return Claim(
        f"highest-{workload}-{partition}",
        f"GAPSL has the highest accuracy on {where}",
        "Table I, Fig. 15, 16",
        "Above each of SFL, EPSL, vanilla SL and PSL.",
        parts,
        whole=True,
    )


def loss_of_skew(evidence: Evidence, line: str, workload: str) -> Values:
    """Return what a line loses from IID to non-IID, by seed."""
    even, skewed = (
        by_seed(evidence.runs(Place(line, workload, partition)), accuracy) for partition in ("iid", "non-iid")
    )
    return minus(even, skewed)


def lose_most(evidence: Evidence) -> Sequence[Part]:
    """Compare what PSL and vanilla SL lose to skew with what the others lose."""
    return [
        difference_part(
            f"{line_name(line)} loses more than {line_name(other)}",
            minus(loss_of_skew(evidence, line, "cifar10"), loss_of_skew(evidence, other, "cifar10")),
        )
        for line in ("psl", "vanilla")
        for other in ("gapsl", "sfl", "epsl")
    ]


def psl_below_sfl(evidence: Evidence) -> Sequence[Part]:
    """Compare PSL with SFL at alpha 0.1, where the paper begins."""
    return [ahead(evidence, Place("sfl"), Place("psl"))]


CLAIMS = (
    *(highest(workload, partition) for workload in DATASETS for partition in ("non-iid", "iid")),
    Claim(
        "lose-most",
        "PSL and vanilla SL lose the most accuracy from IID to non-IID (CIFAR-10: 37.0 and 28.4 points)",
        "Section V-A, Fig. 16",
        "CIFAR-10: each loses more than GAPSL, SFL and EPSL.",
        lose_most,
    ),
    Claim(
        "psl-below-sfl",
        "Without averaging, PSL is less accurate than SFL when labels are skewed",
        "Fig. 2",
        "CIFAR-10, alpha 0.1: SFL above PSL.",
        psl_below_sfl,
    ),
)
