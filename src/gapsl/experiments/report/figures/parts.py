"""From places to curves and bars: means over seeds, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from gapsl.experiments.report.evidence import Evidence, Place, Runs
from gapsl.experiments.report.looks import Look
from gapsl.experiments.report.measures import Measure, by_seed, split
from gapsl.experiments.report.panels import Curve, Series
from gapsl.experiments.report.spread import Estimate, estimate
from gapsl.experiments.store import Result

Course = Callable[[Result], Sequence[tuple[float, float]]]
Labelled = Mapping[tuple[str, Look], Place]  # a place by the label and look of its curve

ACCURACY = "accuracy (%)"
TEST_ACCURACY = "test accuracy (%)"
EPOCH = "epoch"
FAILED = ": failed"


def mean_course(runs: Runs, course: Course) -> tuple[list[float], list[Estimate]]:
    """Return the mean over seeds of something that goes on, as far as all seeds have it."""
    courses = {seed: course(result) for seed, result in runs.items()}
    length = min((len(points) for points in courses.values()), default=0)
    x = [fmean(points[i][0] for points in courses.values()) for i in range(length)]
    found = [estimate({seed: points[i][1] for seed, points in courses.items()}) for i in range(length)]
    return x, [each for each in found if each is not None]


def courses(evidence: Evidence, places: Labelled, course: Course) -> tuple[list[Curve], list[str]]:
    """Return a curve for each place that has one, and the labels of the rest."""
    curves, missing = [], []
    for (label, look), place in places.items():
        x, y = mean_course(evidence.runs(place), course)
        if x:
            curves.append(Curve(label, look, x, y))
        elif evidence.wanted(place):
            missing.append(label)
    return curves, missing


def swept(
    evidence: Evidence,
    label: str,
    look: Look,
    places: Mapping[float, Place],
    ticks: Mapping[float, str],
    measure: Measure,
) -> tuple[Curve | None, list[str]]:
    """Return a curve over the points of a sweep, and the points that are not there."""
    paired = evidence.paired(places.values())
    found = {x: estimate(by_seed(paired.runs(place), measure)) for x, place in places.items()}
    known = {x: each for x, each in found.items() if each is not None}
    without = [
        named(evidence, ticks[x], place)
        for x, place in places.items()
        if x not in known and evidence.wanted(place)
    ]
    curve = Curve(label, look, list(known), list(known.values())) if known else None
    return curve, absent(label, without, some=bool(known))


def bars(
    evidence: Evidence,
    label: str,
    look: Look,
    places: Mapping[str, Place | None],
    measure: Measure,
    *,
    failed: bool = False,
) -> tuple[Series, list[str]]:
    """Return a bar in each group, and the groups where it is not there.

    Runs that failed count as far as they went, if they are asked for.
    """
    found: list[Estimate | None] = []
    without = []
    for group, place in places.items():
        counted = evidence.tried if failed else evidence.runs
        found.append(None if place is None else estimate(by_seed(counted(place), measure)))
        if found[-1] is None and place is not None and evidence.wanted(place):
            without.append(named(evidence, group, place))
    return Series(label, look, found), absent(label, without, some=any(found))


def named(evidence: Evidence, point: str, place: Place) -> str:
    """Return the name of a point that is missing, with the reason if it is that its runs failed."""
    return f"{point}{FAILED}" if evidence.failed(place) else point


def absent(label: str, points: Sequence[str], *, some: bool) -> list[str]:
    """Return what is missing of something: some of its points, or all of it."""
    if not points:
        return []
    told = some or any(point.endswith(FAILED) for point in points)
    return [f"{label} ({', '.join(points)})" if told else label]


def evaluated_on(evidence: Evidence, places: Sequence[Place]) -> str:
    """Return the name of accuracies during training, which say what they are measured on."""
    runs = [result for place in places for result in evidence.runs(place).values()]
    return f"{split(runs)} {ACCURACY}"
