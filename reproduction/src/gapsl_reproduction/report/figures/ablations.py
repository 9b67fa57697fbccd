"""What remains of GAPSL, and of what is recommended, without a part of it."""

from __future__ import annotations

from gapsl_reproduction.catalogue.lines import PARTS
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.parts import TEST_ACCURACY, bars
from gapsl_reproduction.report.looks import look_of
from gapsl_reproduction.report.measures import accuracy, by_seed
from gapsl_reproduction.report.naming import line_name, part_name, workload_name
from gapsl_reproduction.report.panels import Bars, Picture, Rows
from gapsl_reproduction.report.spread import estimate


def ablation_lgi(evidence: Evidence) -> Picture:
    """Return the accuracy with other leaders."""
    return ablation(evidence, "LGI", ("non-lgi", "rand-lgi"))


def ablation_gda(evidence: Evidence) -> Picture:
    """Return the accuracy without alignment, or with alignment at random."""
    return ablation(evidence, "GDA", ("non-gda", "rand-gda"))


def ablation(evidence: Evidence, part: str, variants: tuple[str, str]) -> Picture:
    """Return bars for the whole and for its variants, a panel a workload."""
    shown = {f"with {part}": "gapsl", **{line_name(name): name for name in variants}}
    shown["without alignment (PSL)"] = "psl"
    panels = []
    for workload in evidence.scale.workloads:
        series, missing = [], []
        for label, line in shown.items():
            own, without = bars(evidence, label, look_of(line), {"GAPSL": Place(line, workload)}, accuracy)
            series.append(own)
            missing += without
        title = f"{workload_name(workload, evidence.scale)}, non-IID"
        panels.append(Bars(title, TEST_ACCURACY, ["GAPSL"], series, missing=missing))
    return Picture(panels)


def ablation_recommended(evidence: Evidence) -> Picture:
    """Return the accuracy of what is recommended, with a part taken away or added."""
    # All over the seeds that all have: what differs is then not who has more of them.
    evidence = evidence.paired([Place(line) for line in PARTS])
    found = {line: estimate(by_seed(evidence.runs(Place(line)), accuracy)) for line in PARTS}
    rows = {part_name(line): each for line, each in found.items() if each is not None}
    missing = [part_name(line) for line, each in found.items() if each is None]
    title = f"recommended, {workload_name('cifar10', evidence.scale)}, non-IID"
    panel = Rows(title, TEST_ACCURACY, rows, found["recommended"], look_of("recommended"), missing)
    return Picture([panel], columns=1, height=1.2 + 0.22 * max(len(rows), 4))
