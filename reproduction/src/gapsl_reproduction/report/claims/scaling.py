"""Claims about more devices and more skew."""

from __future__ import annotations

from collections.abc import Sequence

from gapsl_reproduction.catalogue.lines import METHODS_OF_PAPER
from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.comparing import RIVALS, ahead_of_all, difference_part, told
from gapsl_reproduction.report.claims.deciding import at_most, within
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import accuracy, by_seed
from gapsl_reproduction.report.naming import DATASETS, PARTITIONS, line_name
from gapsl_reproduction.report.spread import Values, minus

HARDLY = 2.0  # points; the paper's own fall is 1.6


def fall_with_devices(evidence: Evidence, line: str, partition: str) -> Values:
    """Return what a line loses from the fewest devices to the most, by seed."""
    sizes = evidence.sweep("devices")
    few, many = (
        by_seed(evidence.runs(Place(line, partition=partition, sweep="devices", at=at)), accuracy)
        for at in (sizes[0], sizes[-1])
    )
    return minus(few, many)


def steady_with_devices(evidence: Evidence) -> Sequence[Part]:
    """See how far GAPSL falls with more devices, and whether the others fall further."""
    own = fall_with_devices(evidence, "gapsl", "non-iid")
    sizes = evidence.sweep("devices")
    falls = [
        difference_part(
            f"{line_name(rival)} falls more than GAPSL",
            minus(fall_with_devices(evidence, rival, "non-iid"), own),
        )
        for rival in RIVALS
    ]
    text = f"GAPSL's fall from {sizes[0]} to {sizes[-1]} devices: {told(own)}"
    return [Part(text, at_most(own, HARDLY), len(own)), *falls]


def highest_with_devices(evidence: Evidence) -> Sequence[Part]:
    """Compare GAPSL with the best of the others at each number of devices."""
    return [
        ahead_of_all(
            evidence,
            Place("gapsl", partition=partition, sweep="devices", at=at),
            [Place(rival, partition=partition, sweep="devices", at=at) for rival in RIVALS],
            f"{PARTITIONS[partition]}, {at} devices",
        )
        for partition in ("non-iid", "iid")
        for at in evidence.sweep("devices")
    ]


def steady_when_even(evidence: Evidence) -> Sequence[Part]:
    """See how far each method falls with more devices when labels are even."""
    falls = {line: fall_with_devices(evidence, line, "iid") for line in METHODS_OF_PAPER}
    return [
        Part(f"{line_name(line)}'s fall: {told(fall)}", within(fall, HARDLY), len(fall))
        for line, fall in falls.items()
    ]


def fall_with_skew(evidence: Evidence, line: str, workload: str) -> Values:
    """Return what a line loses from the largest alpha of Table III to its smallest, by seed."""
    alphas = sorted(evidence.sweep("alpha"), key=float)
    even, skewed = (
        by_seed(evidence.runs(Place(line, workload, sweep="alpha", at=at)), accuracy)
        for at in (alphas[-1], alphas[0])
    )
    return minus(even, skewed)


def psl_falls_most(evidence: Evidence) -> Sequence[Part]:
    """Compare what PSL loses to skew with what the others lose."""
    return [
        difference_part(
            f"{DATASETS[workload]}, PSL falls more than {line_name(other)}",
            minus(fall_with_skew(evidence, "psl", workload), fall_with_skew(evidence, other, workload)),
        )
        for workload in DATASETS
        for other in ("gapsl", "sfl", "epsl", "vanilla")
    ]


def highest_with_skew(evidence: Evidence) -> Sequence[Part]:
    """Compare GAPSL with the best of the others at each alpha of Table III."""
    return [
        ahead_of_all(
            evidence,
            Place("gapsl", workload, sweep="alpha", at=at),
            [Place(rival, workload, sweep="alpha", at=at) for rival in RIVALS],
            f"{DATASETS[workload]}, alpha {at}",
        )
        for workload in DATASETS
        for at in evidence.sweep("alpha")
    ]


CLAIMS = (
    Claim(
        "steady-with-devices",
        "GAPSL's accuracy hardly falls from 10 to 40 devices on skewed labels, the others' does",
        "Table II, Fig. 18",
        f"CIFAR-10 non-IID: GAPSL falls by at most {HARDLY:g} points, and each of the others by more.",
        steady_with_devices,
    ),
    Claim(
        "highest-with-devices",
        "GAPSL has the highest accuracy for every number of devices",
        "Table II, Fig. 18",
        "CIFAR-10: above the best of SFL, EPSL, vanilla SL and PSL (on the validation split) at each number.",
        highest_with_devices,
    ),
    Claim(
        "steady-when-even",
        "On IID data no method's accuracy changes much with the number of devices",
        "Table II, Fig. 18",
        f"CIFAR-10 IID: each of the five falls or rises by at most {HARDLY:g} points.",
        steady_when_even,
    ),
    Claim(
        "psl-falls-most",
        "PSL degrades most as alpha gets smaller",
        "Table III, Fig. 19",
        "From the largest to the smallest alpha of Table III, PSL falls more than each of the others.",
        psl_falls_most,
        whole=True,
    ),
    Claim(
        "highest-with-skew",
        "GAPSL has the highest accuracy at every alpha",
        "Table III, Fig. 19",
        "Above the best of SFL, EPSL, vanilla SL and PSL (on the validation split) at each alpha of "
        "Table III.",
        highest_with_skew,
    ),
)
