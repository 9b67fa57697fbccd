"""Claims about the parts of GAPSL: what is lost without each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.comparing import ahead, difference_part
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import accuracy, by_seed
from gapsl_reproduction.report.naming import DATASETS, line_name
from gapsl_reproduction.report.spread import minus


def beats(*variants: str) -> Callable[[Evidence], Sequence[Part]]:
    """Return the parts of a claim that GAPSL is above itself with a part changed."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        return [
            ahead(
                evidence,
                Place("gapsl", workload),
                Place(variant, workload),
                f"{DATASETS[workload]}, GAPSL above {line_name(variant)}",
            )
            for workload in DATASETS
            for variant in variants
        ]

    return parts


def worse(lower: str, higher: str) -> Callable[[Evidence], Sequence[Part]]:
    """Return the parts of a claim about the order of two variants."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        return [
            ahead(
                evidence,
                Place(higher, workload),
                Place(lower, workload),
                f"{DATASETS[workload]}, {line_name(higher)} above {line_name(lower)}",
            )
            for workload in DATASETS
        ]

    return parts


def more_on_transformers(evidence: Evidence) -> Sequence[Part]:
    """Compare what LGI brings on CIFAR-100 with ViT and on CIFAR-10 with VGG."""
    found = []
    for variant in ("non-lgi", "rand-lgi"):
        gains = [
            minus(*(by_seed(evidence.runs(Place(line, workload)), accuracy) for line in ("gapsl", variant)))
            for workload in ("cifar100", "cifar10")
        ]
        text = f"the lead over {line_name(variant)} larger on CIFAR-100 than on CIFAR-10"
        found.append(difference_part(text, minus(*gains)))
    return found


CLAIMS = (
    Claim(
        "lgi",
        "LGI beats Non-LGI (the mean of all as leader) and Rand-LGI (of some at random)",
        "Fig. 20",
        "Alpha 0.1: GAPSL above both.",
        beats("non-lgi", "rand-lgi"),
    ),
    Claim(
        "rand-lgi-worst",
        "Rand-LGI is even worse than Non-LGI",
        "Fig. 20",
        "Alpha 0.1: Non-LGI above Rand-LGI.",
        worse("rand-lgi", "non-lgi"),
    ),
    Claim(
        "lgi-on-transformers",
        "LGI brings more with ViT than with VGG-16",
        "Fig. 20",
        "Alpha 0.1: the lead over Non-LGI and over Rand-LGI is larger on CIFAR-100.",
        more_on_transformers,
    ),
    Claim(
        "gda",
        "GDA beats Non-GDA (no alignment) and Rand-GDA (alignment at random)",
        "Fig. 21",
        "Alpha 0.1: GAPSL above both.",
        beats("non-gda", "rand-gda"),
    ),
    Claim(
        "non-gda-worst",
        "Non-GDA is the worst, Rand-GDA marginally better",
        "Fig. 21",
        "Alpha 0.1: Rand-GDA above Non-GDA.",
        worse("non-gda", "rand-gda"),
    ),
)
