"""Claims about what GAPSL costs: traffic and computation."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.deciding import State
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import Measure, by_seed, megabytes, seconds
from gapsl_reproduction.report.naming import PARTITIONS, line_name

ASIDE = "other runs went on beside these, on several processors; benchmarks/README.md has it measured alone"


def common(evidence: Evidence, first: Place, second: Place, measure: Measure) -> tuple[float, float] | None:
    """Return the means of a measure in two places over the seeds they share."""
    own, other = by_seed(evidence.runs(first), measure), by_seed(evidence.runs(second), measure)
    seeds = set(own) & set(other)
    return (fmean(own[s] for s in seeds), fmean(other[s] for s in seeds)) if seeds else None


def traffic(evidence: Evidence) -> Sequence[Part]:
    """Compare bytes with those of PSL and SFL in the same rounds."""
    found = []
    for partition, name in PARTITIONS.items():
        for other in ("psl", "sfl"):
            places = Place("gapsl", partition=partition), Place(other, partition=partition)
            both = common(evidence, *places, megabytes)
            if both is None:
                found.append(Part(f"{name}, {line_name(other)}: not measured", State.MISSING))
                continue
            text = f"{name}: GAPSL {both[0]:,.1f} MB, {line_name(other)} {both[1]:,.1f} MB"
            so = both[0] == both[1] if other == "psl" else both[0] < both[1]
            found.append(Part(text, State.of(so)))
    return found


def time(evidence: Evidence) -> Sequence[Part]:
    """Compare the seconds of training with PSL's; the fastest runs, whom others disturbed least."""
    found = []
    for partition, name in PARTITIONS.items():
        both = [
            by_seed(evidence.runs(Place(line, partition=partition)), seconds) for line in ("gapsl", "psl")
        ]
        if not all(both):
            found.append(Part(f"{name}: not measured", State.MISSING))
            continue
        own, other = (min(values.values()) for values in both)
        text = f"{name}: {own:,.0f} s against {other:,.0f} s, {own / other:.2f} times"
        found.append(Part(text, State.UNJUDGED, min(map(len, both)), why=ASIDE))
    return found


CLAIMS = (
    Claim(
        "traffic",
        "GAPSL communicates exactly as much as PSL, and less than SFL",
        "Section III-A",
        "CIFAR-10, bytes of all devices in the same rounds: equal to PSL's, below SFL's.",
        traffic,
    ),
    Claim(
        "light",
        "What GAPSL adds on the server is light compared with back-propagation",
        "Section III-C, complexity",
        "CIFAR-10: seconds of training, the fastest run of each, on one thread. (The paper counts dot "
        "products; the derivative of its regulariser is a second-order pass, of which devices that are not "
        "kept are spared.)",
        time,
    ),
)
