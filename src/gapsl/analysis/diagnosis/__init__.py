"""What a run's files say about how it is going, and what to try: pure functions from evidence to findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapsl.analysis.diagnosis import (
    absence,
    accuracy,
    agreement,
    common_ground,
    cost,
    drift,
    exclusion,
    gradients,
    loss,
    skew,
)
from gapsl.analysis.diagnosis.evidence import Evaluation, Evidence, Labels, Round
from gapsl.analysis.diagnosis.finding import Advice, Finding, Severity
from gapsl.analysis.diagnosis.reading import read_evidence

__all__ = [
    "Advice",
    "Evaluation",
    "Evidence",
    "Finding",
    "Labels",
    "Round",
    "Severity",
    "diagnose",
    "read_evidence",
    "things_to_try",
]

Finder = Callable[[Evidence], Finding | None]

# Whether anything is learned at all.
NUMBERS: tuple[Finder, ...] = (
    gradients.not_finite,
    gradients.exploding,
    gradients.vanishing,
    drift.blown_up,
    loss.rising,
    loss.stuck,
    accuracy.guessing,
)
# How well, why not better, and what it cost.
REST: tuple[Finder, ...] = (
    accuracy.fallen,
    absence.absent_devices,
    drift.halves_apart,
    common_ground.on_probes,
    accuracy.own_labels_only,
    accuracy.worst_device,
    accuracy.unknown_classes,
    exclusion.few_kept,
    exclusion.left_out,
    exclusion.starved_classes,
    agreement.disagreement,
    agreement.outlying_device,
    common_ground.odd_half,
    common_ground.who_leads,
    drift.far_from_start,
    drift.straying_device,
    gradients.loud_device,
    skew.label_skew,
    skew.lone_classes,
    accuracy.still_rising,
    cost.time_and_traffic,
)


def diagnose(run: Evidence) -> list[Finding]:
    """Return what there is to say about a run, the worst first.

    Where the numbers have run away, findings that ask for something else are left out: they follow from it.
    """
    found = [finding for finder in NUMBERS if (finding := finder(run)) is not None]
    broken = any(finding.breaks for finding in found)
    rest = [finding for finder in REST if (finding := finder(run)) is not None]
    found += [finding for finding in rest if not broken or finding.severity == Severity.INFO]
    return sorted(found, key=lambda finding: -finding.severity)


def things_to_try(findings: Sequence[Finding]) -> list[Advice]:
    """Return every piece of advice once, that for most trouble first."""
    weight: dict[Advice, int] = {}
    for finding in findings:
        for advice in finding.advice:
            weight[advice] = weight.get(advice, 0) + finding.severity
    return sorted(weight, key=lambda advice: -weight[advice])
