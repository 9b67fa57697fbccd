"""Claims about how fast methods converge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gapsl_reproduction.catalogue.lines import METHODS_OF_PAPER
from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.comparing import RIVALS, difference_part
from gapsl_reproduction.report.claims.deciding import State
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import by_seed, converged, course
from gapsl_reproduction.report.naming import DATASETS, PARTITIONS, line_name
from gapsl_reproduction.report.schedules import CONSTANT, schedule_of
from gapsl_reproduction.report.spread import minus
from gapsl_reproduction.store import Result

OWN_BEST = (
    "Converged: the first epoch whose smoothed accuracy is within a point of the run's own best, so that a "
    "method that stops improving early counts as fast. With one or two seeds a difference counts if it is "
    "more than the time between two evaluations. Not judged where the learning rates fall by a schedule: "
    "then all accuracies rise until the rates are low, whoever learns."
)

WHY_NOT = "the schedule of the learning rates decides when accuracy stops rising"


def between_evaluations(runs: Sequence[Result]) -> float:
    """Return the epochs between two evaluations: no difference below that can be seen."""
    return max((b - a for run in runs for (a, _), (b, _) in pairwise(course(run))), default=0.0)


def sooner(evidence: Evidence, first: Place, second: Place, text: str) -> Part:
    """Return whether one place converges in fewer epochs than another, if that can be judged."""
    runs = evidence.runs(first)
    early, late = by_seed(runs, converged), by_seed(evidence.runs(second), converged)
    step = between_evaluations(list(runs.values()))
    found = difference_part(text, minus(late, early), step, " epochs")
    schedule = schedule_of(evidence.scale, first.workload)
    if schedule == CONSTANT:
        return found
    return replace(found, state=State.UNJUDGED, why=f"{WHY_NOT} ({schedule})")


def fewest(workload: str) -> Claim:
    """Return the claim that GAPSL converges first."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        return [
            sooner(
                evidence,
                Place("gapsl", workload, partition),
                Place(rival, workload, partition),
                f"{PARTITIONS[partition]}, {line_name(rival)} takes longer than GAPSL",
            )
            for partition in ("non-iid", "iid")
            for rival in RIVALS
        ]

    return Claim(
        f"fewest-epochs-{workload}",
        f"GAPSL converges in the fewest epochs on {DATASETS[workload]}",
        "Table I, Fig. 17",
        f"Fewer epochs than each of SFL, EPSL, vanilla SL and PSL, IID and not. {OWN_BEST}",
        parts,
    )


def slower_when_skewed(evidence: Evidence) -> Sequence[Part]:
    """Compare each method's time, IID and not."""
    return [
        sooner(evidence, Place(line, partition="iid"), Place(line), f"{line_name(line)}, later when non-IID")
        for line in METHODS_OF_PAPER
    ]


CLAIMS = (
    *(fewest(workload) for workload in DATASETS),
    Claim(
        "slower-when-skewed",
        "Every method converges more slowly on skewed labels",
        "Section V-A, Fig. 15",
        "CIFAR-10: each of the five takes more epochs non-IID than IID. Not judged where learning rates fall "
        "by a schedule.",
        slower_when_skewed,
    ),
)
