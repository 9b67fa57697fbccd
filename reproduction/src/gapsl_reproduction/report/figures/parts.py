"""From places to curves and bars: means over seeds, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from gapsl_reproduction.report.evidence import Evidence, Place, Runs
from gapsl_reproduction.report.looks import Look
from gapsl_reproduction.report.measures import Measure, by_seed, split
from gapsl_reproduction.report.panels import Curve, Series
from gapsl_reproduction.report.spread import Estimate, estimate
from gapsl_reproduction.store import Result

Course = Callable[[Result], Sequence[tuple[float, float]]]
Labelled = Mapping[tuple[str, Look], Place]  # a place by the label and look of its curve

ACCURACY = "accuracy (%)"
TEST_ACCURACY = "test accuracy (%)"
EPOCH = "epoch"


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
    """Return a curve over the points of a sweep, and the points that are not there, or not whole."""
    paired = evidence.paired(places.values())
    found = {x: estimate(by_seed(paired.runs(place), measure)) for x, place in places.items()}
    known = {x: each for x, each in found.items() if each is not None}
    without = {
        ticks[x]: failed(evidence, place)
        for x, place in places.items()
        if evidence.wanted(place) and (x not in known or evidence.failed(place))
    }
    curve = Curve(label, look, list(known), list(known.values())) if known else None
    return curve, absent(label, without, some=bool(known))


def bars(
    evidence: Evidence,
    label: str,
    look: Look,
    places: Mapping[str, Place | None],
    measure: Measure,
    *,
    tried: bool = False,
) -> tuple[Series, list[str]]:
    """Return a bar in each group, and the groups where it is not there, or not whole.

    Runs that failed count as well where all that were tried are asked for, as far as they went.
    """
    found: list[Estimate | None] = []
    without = {}
    for group, place in places.items():
        counted = evidence.tried if tried else evidence.runs
        found.append(None if place is None else estimate(by_seed(counted(place), measure)))
        if place is not None and evidence.wanted(place):
            why = "" if tried else failed(evidence, place)
            if found[-1] is None or why:
                without[group] = why
    return Series(label, look, found), absent(label, without, some=any(found))


def failed(evidence: Evidence, place: Place) -> str:
    """Say how many of a place's runs failed; nothing if none did."""
    bad, every = len(evidence.failed(place)), len(evidence.tried(place))
    return "" if not bad else "failed" if bad == every else f"{bad} of {every} failed"


def absent(label: str, points: Mapping[str, str], *, some: bool) -> list[str]:
    """Return what is missing of something: some of its points, with the reason if one is known, or all."""
    if not points:
        return []
    if not some and not any(points.values()):
        return [label]
    told = [f"{point}: {why}" if why else point for point, why in points.items()]
    return [f"{label} ({', '.join(told)})"]


def evaluated_on(evidence: Evidence, places: Sequence[Place]) -> str:
    """Return the name of accuracies during training, which say what they are measured on."""
    runs = [result for place in places for result in evidence.runs(place).values()]
    return f"{split(runs)} {ACCURACY}"
