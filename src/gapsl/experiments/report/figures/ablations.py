"""What remains of GAPSL, and of what is recommended, without a part of it."""

from __future__ import annotations

from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.figures.parts import TEST_ACCURACY, bars
from gapsl.experiments.report.looks import look_of
from gapsl.experiments.report.measures import accuracy
from gapsl.experiments.report.naming import line_name, workload_name
from gapsl.experiments.report.panels import Bars, Picture
from gapsl.experiments.report.shown import distinct

BASES = {"gapsl": "", "recommended": "recommended "}  # what a variant's name begins with


def ablation_lgi(evidence: Evidence) -> Picture:
    """Return the accuracy with other leaders."""
    return ablation(evidence, "LGI", ("non-lgi", "rand-lgi"))


def ablation_gda(evidence: Evidence) -> Picture:
    """Return the accuracy without alignment, or with alignment at random."""
    return ablation(evidence, "GDA", ("non-gda", "rand-gda"))


def ablation(evidence: Evidence, part: str, variants: tuple[str, str]) -> Picture:
    """Return bars for the whole and for its variants, a panel a workload."""
    bases = {line_name(line): line for line in distinct(BASES)}
    shown = {f"with {part}": ("gapsl", None), **{line_name(name): (name, name) for name in variants}}
    shown["without alignment (PSL)"] = ("psl", "psl")
    panels = []
    for workload in evidence.scale.workloads:
        series, missing = [], []
        for label, (look, variant) in shown.items():
            places = {
                group: Place(base if variant is None else BASES[base] + variant, workload)
                for group, base in bases.items()
            }
            own, without = bars(evidence, label, look_of(look), {**places}, accuracy)
            series.append(own)
            missing += without
        title = f"{workload_name(workload, evidence.scale)}, non-IID"
        panels.append(Bars(title, TEST_ACCURACY, list(bases), series, missing=missing))
    return Picture(panels)
