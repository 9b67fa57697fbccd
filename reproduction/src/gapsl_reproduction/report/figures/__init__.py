"""Every figure by the name of its experiment, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.figures import (
    ablations,
    devices,
    motivation,
    ours,
    robustness,
    selection,
    sweeps,
    table1,
)
from gapsl_reproduction.report.panels import Picture

FIGURES: Mapping[str, Callable[[Evidence], Picture]] = {
    "curves": table1.curves,
    "converged-accuracy": table1.converged_accuracy,
    "converged-time": table1.converged_time,
    "accuracy-vs-devices": sweeps.by_devices,
    "accuracy-vs-alpha": sweeps.by_alpha,
    "psl-vs-sfl": motivation.psl_vs_sfl,
    "angle-vs-alpha": motivation.angle_vs_alpha,
    "single-device": devices.single_device,
    "score-vs-accuracy": devices.score_vs_accuracy,
    "selection-ratio": selection.selection_ratio,
    "dispersion": selection.dispersion_figure,
    "leader-vs-single": devices.leader_vs_single,
    "threshold": selection.threshold,
    "ablation-lgi": ablations.ablation_lgi,
    "ablation-gda": ablations.ablation_gda,
    "ablation-recommended": ablations.ablation_recommended,
    "robustness": robustness.robustness,
    "separation": robustness.separation,
    "feature-shift": ours.feature_shift,
    "cost": ours.cost,
    "length": sweeps.by_length,
    "fleet": sweeps.by_fleet,
    "readings": ours.readings,
}


def pictures(evidence: Evidence) -> dict[str, Picture]:
    """Return every figure, also those that have nothing to show yet."""
    return {name: figure(evidence) for name, figure in FIGURES.items()}
