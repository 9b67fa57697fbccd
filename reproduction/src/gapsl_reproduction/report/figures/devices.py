"""Figures with a bar a device: one device alone, scores against accuracies, the leader against each.

They are of one seed, the first: with another, a device has other data and is another device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from gapsl_reproduction.report.evidence import Evidence, Place, Runs
from gapsl_reproduction.report.figures.parts import EPOCH, TEST_ACCURACY, bars, courses, evaluated_on
from gapsl_reproduction.report.looks import Look, look_of, ordered_look
from gapsl_reproduction.report.measures import (
    accuracy,
    by_seed,
    course,
    device_accuracies,
    over_devices,
)
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.panels import Bars, Lines, Picture, Series
from gapsl_reproduction.report.ranks import rank_correlation
from gapsl_reproduction.report.schedules import COUNTED, time_of
from gapsl_reproduction.report.spread import Estimate, estimate
from gapsl_reproduction.store import Result

ALONE = "one device alone"
SCORE = Look("#7A5195")


def singles(evidence: Evidence) -> dict[int, Place]:
    """Return the places of the devices that train alone."""
    return {int(at): Place("single", sweep="single", at=at) for at in evidence.sweep("single")}


def first_seed(evidence: Evidence, places: Iterable[Place]) -> Evidence:
    """Return the first seed alone that any of the places has."""
    seeds = [seed for place in places for seed in evidence.runs(place)]
    return evidence.restricted([min(seeds)] if seeds else [])


def single_device(evidence: Evidence) -> Picture:
    """Return the accuracy with one device's gradients alone, at the end and over the epochs."""
    places = singles(evidence)
    evidence = first_seed(evidence, places.values())
    groups = {str(device): place for device, place in places.items()}
    alone, missing = bars(evidence, ALONE, look_of("single"), {**groups}, accuracy)
    looks = {device: ordered_look(i, len(places)) for i, device in enumerate(places)}
    labelled = {(f"device {device}", looks[device]): place for device, place in places.items()}
    curves, without = courses(evidence, labelled, course)
    label = evaluated_on(evidence, list(places.values()))
    return Picture(
        [
            Bars("(a) at the end", TEST_ACCURACY, list(groups), [alone], "device", missing),
            Lines("(b) over the epochs", EPOCH, label, curves, missing=without),
        ]
    )


def score_vs_accuracy(evidence: Evidence) -> Picture:
    """Return normalised consistency scores and accuracies of the devices, as PSL has them."""
    psl = Place("psl")
    correlation = mean_correlation(evidence.runs(psl))
    evidence = first_seed(evidence, [psl])
    runs = list(evidence.runs(psl).values())
    scores = normalised(runs[0]) if runs else []
    own = device_accuracies(runs[0]) if runs else []
    devices = sorted(range(len(scores)), key=lambda device: scores[device])
    places = singles(evidence)
    lone = {
        device: estimate(by_seed(evidence.runs(places[device]), accuracy)) if device in places else None
        for device in devices
    }
    names = [str(device) for device in devices]
    missing = [] if runs else [line_name("psl")]
    without = [*missing, *([] if any(lone.values()) else [ALONE])]
    rank = "" if correlation is None else f"{correlation:+.2f}".replace("-", "−")
    told = f" Over all seeds the rank correlation is {rank}." if rank else ""
    return Picture(
        [
            Bars(
                "(a) normalised consistency score",
                "score (0: agrees most)",
                names,
                [Series("score in PSL", SCORE, ones(scores, devices))],
                "device, by score",
                missing,
            ),
            Bars(
                "(b) accuracy",
                TEST_ACCURACY,
                names,
                [
                    Series("with its half in PSL", look_of("psl"), ones(own, devices)),
                    Series(ALONE, look_of("single"), list(lone.values())),
                ],
                "device, by score",
                without,
            ),
        ],
        says="Scores are scaled from 0 to 1. If low scores go with high accuracy, the bars on the right fall "
        f"from left to right.{told}",
    )


def normalised(result: Result) -> list[float]:
    """Return the devices' mean scores, from 0 for the lowest to 1 for the highest."""
    scores = over_devices(result, "scores")
    found = [score for score in scores if score is not None]
    if not found or len(found) < len(scores):  # a device that was never there
        return []
    low, high = min(found), max(found)
    return [(score - low) / (high - low) if high > low else 0.0 for score in found]


def mean_correlation(runs: Runs) -> float | None:
    """Return the rank correlation of scores with accuracies, mean over the runs."""
    each = [rank_correlation(normalised(r), device_accuracies(r)) for r in runs.values() if normalised(r)]
    known = [value for value in each if value is not None]
    return fmean(known) if known else None


def ones(values: Sequence[float], devices: Sequence[int]) -> list[Estimate | None]:
    """Return numbers of one seed, in the order of these devices."""
    return [Estimate(values[device], None, 1) for device in devices]


def leader_vs_single(evidence: Evidence) -> Picture:
    """Return accuracy and converged time of the leader gradient beside each device's alone."""
    places = singles(evidence)
    leader = Place("non-gda")
    evidence = first_seed(evidence, [leader, *places.values()])
    names = ["leader", *(str(device) for device in places)]
    panels = []
    for title, measure, label in (
        ("(a) accuracy", accuracy, TEST_ACCURACY),
        ("(b) converged time", *time_of(evidence.scale, leader.workload)),
    ):
        shown: dict[str, Place | None] = dict.fromkeys(names)
        own = shown | {"leader": leader}
        lone = shown | {str(device): place for device, place in places.items()}
        first, without = bars(evidence, "leader gradient (Non-GDA)", look_of("gapsl"), own, measure)
        second, missing = bars(evidence, ALONE, look_of("single"), lone, measure)
        panels.append(Bars(title, label, names, [first, second], "device", without + missing))
    return Picture(panels, says=f"(b) {COUNTED}")
