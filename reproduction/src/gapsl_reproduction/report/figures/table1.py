"""The figures of Table I: accuracy over the epochs, at the end, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping

from gapsl_reproduction.catalogue.lines import TABLE
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.parts import EPOCH, TEST_ACCURACY, bars, courses, evaluated_on
from gapsl_reproduction.report.looks import look_of
from gapsl_reproduction.report.measures import Measure, accuracy, course
from gapsl_reproduction.report.naming import PARTITIONS, line_name, workload_name
from gapsl_reproduction.report.panels import Bars, Lines, Picture
from gapsl_reproduction.report.schedules import COUNTED, time_of


def curves(evidence: Evidence) -> Picture:
    """Return the accuracy over the epochs, a panel a workload and partition."""
    panels = []
    for workload in evidence.scale.workloads:
        for partition in PARTITIONS:
            places = {(line_name(line), look_of(line)): Place(line, workload, partition) for line in TABLE}
            title = f"{workload_name(workload, evidence.scale)}, {PARTITIONS[partition]}"
            found, missing = courses(evidence, places, course)
            label = evaluated_on(evidence, list(places.values()))
            panels.append(Lines(title, EPOCH, label, found, missing=missing))
    return Picture(panels, says="Measured during training; the bands are one standard deviation.")


def converged_accuracy(evidence: Evidence) -> Picture:
    """Return the accuracy at the end."""
    shown = dict.fromkeys(evidence.scale.workloads, (accuracy, TEST_ACCURACY))
    return Picture(by_partition(evidence, shown))


def converged_time(evidence: Evidence) -> Picture:
    """Return the time until the accuracy was within a point of its best."""
    times = {workload: time_of(evidence.scale, workload) for workload in evidence.scale.workloads}
    says = "Until the smoothed accuracy is within a point of the run's own best: a low best is soon reached."
    return Picture(by_partition(evidence, times), says=f"{says} {COUNTED}")


def by_partition(evidence: Evidence, shown: Mapping[str, tuple[Measure, str]]) -> list[Bars]:
    """Return a bar a line, IID and not, a panel a workload, each with its measure and the name of that."""
    panels = []
    for workload, (measure, label) in shown.items():
        series, missing = [], []
        for line in TABLE:
            places = {name: Place(line, workload, key) for key, name in PARTITIONS.items()}
            own, without = bars(evidence, line_name(line), look_of(line), places, measure)
            series.append(own)
            missing += without
        title = workload_name(workload, evidence.scale)
        panels.append(Bars(title, label, list(PARTITIONS.values()), series, missing=missing))
    return panels
