"""Accuracy by number of devices and by label skew, for the lines of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapsl_reproduction.catalogue.contents import OVER_LENGTH
from gapsl_reproduction.catalogue.lines import GOAL_PAIR, TABLE
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.parts import TEST_ACCURACY, swept
from gapsl_reproduction.report.looks import look_of
from gapsl_reproduction.report.measures import Measure, accuracy
from gapsl_reproduction.report.naming import PARTITIONS, line_name, workload_name
from gapsl_reproduction.report.panels import Lines, Picture

ALPHA = "Dirichlet alpha (labels ever more skewed)"


def by_devices(evidence: Evidence) -> Picture:
    """Return the accuracy by number of devices, IID and not."""
    sizes = evidence.sweep("devices")
    panels = []
    for partition, name in PARTITIONS.items():
        places = {
            line: {
                float(i): Place(line, partition=partition, sweep="devices", at=size)
                for i, size in enumerate(sizes)
            }
            for line in TABLE
        }
        ticks = {float(i): size for i, size in enumerate(sizes)}
        title = f"{workload_name('cifar10', evidence.scale)}, {name}"
        panels.append(lines_by(evidence, title, "devices", TEST_ACCURACY, places, ticks, accuracy))
    return Picture(panels)


def by_fleet(evidence: Evidence) -> Picture:
    """Return the accuracy of what is recommended and of PSL by number of devices, for as many rounds."""
    return over(evidence, "fleet", GOAL_PAIR, "devices")


def over(evidence: Evidence, sweep: str, lines: Sequence[str], label: str) -> Picture:
    """Return the accuracy of some lines over a sweep, on skewed labels."""
    points = {float(i): at for i, at in enumerate(evidence.sweep(sweep))}
    places = {line: {i: Place(line, sweep=sweep, at=at) for i, at in points.items()} for line in lines}
    title = f"{workload_name('cifar10', evidence.scale)}, non-IID"
    return Picture([lines_by(evidence, title, label, TEST_ACCURACY, places, points, accuracy)])


def by_alpha(evidence: Evidence) -> Picture:
    """Return the accuracy by label skew, a panel a workload."""
    return Picture(
        [
            over_alpha(
                evidence, workload_name(workload, evidence.scale), TEST_ACCURACY, TABLE, accuracy, workload
            )
            for workload in evidence.scale.workloads
        ]
    )


def by_length(evidence: Evidence) -> Picture:
    """Return the accuracy by length of training; every length has a schedule of its own."""
    (unit,) = {unit for settings in evidence.scale.sweeps["length"].values() for unit in settings}
    return over(evidence, "length", OVER_LENGTH, unit)


def over_alpha(
    evidence: Evidence,
    title: str,
    label: str,
    lines: tuple[str, ...],
    measure: Measure,
    workload: str = "cifar10",
) -> Lines:
    """Return a measure of lines over alpha, the most even labels first."""
    places = {
        line: {float(i): place for i, place in enumerate(evidence.over_alpha(line, workload).values())}
        for line in lines
    }
    alphas = evidence.over_alpha(lines[0], workload)
    ticks = {float(i): f"{alpha:g}" for i, alpha in enumerate(alphas)}
    return lines_by(evidence, title, ALPHA, label, places, ticks, measure)


def lines_by(
    evidence: Evidence,
    title: str,
    x_label: str,
    y_label: str,
    places: Mapping[str, Mapping[float, Place]],
    ticks: Mapping[float, str],
    measure: Measure,
) -> Lines:
    """Return a panel with a curve a line over the points of a sweep."""
    curves, missing = [], []
    for line, own in places.items():
        curve, without = swept(evidence, line_name(line), look_of(line), own, ticks, measure)
        curves += [curve] if curve is not None else []
        missing += without
    return Lines(title, x_label, y_label, curves, ticks=ticks, missing=missing)
