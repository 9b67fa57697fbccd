"""Figures the paper does not have: feature shift, cost, and what it leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gapsl_reproduction.catalogue.lines import TABLE
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.parts import TEST_ACCURACY, bars, courses, evaluated_on
from gapsl_reproduction.report.looks import look_of
from gapsl_reproduction.report.measures import accuracy, by_seed
from gapsl_reproduction.report.naming import PARTITIONS, line_name
from gapsl_reproduction.report.panels import Bars, Lines, Picture, Rows
from gapsl_reproduction.report.spread import estimate
from gapsl_reproduction.store import Result

CLEAN = "nothing (IID)"


def feature_shift(evidence: Evidence) -> Picture:
    """Return the accuracy of devices that see the same labels through different sensors."""
    shifts = evidence.sweep("shift")
    series, missing = [], []
    for line in TABLE:
        if line == "central":  # in one place there are no devices to differ
            continue
        clean, shifted = Place(line, partition="iid"), Place(line, partition="iid", sweep="shift")
        places = {CLEAN: clean, **{at: replace(shifted, at=at) for at in shifts}}
        paired = evidence.paired(places.values())
        own, without = bars(paired, line_name(line), look_of(line), {**places}, accuracy)
        series.append(own)
        missing += without
    groups = [CLEAN, *shifts]
    panel = Bars("what differs between devices", TEST_ACCURACY, groups, series, missing=missing)
    return Picture([panel], columns=1, height=3.6)


def cost(evidence: Evidence) -> Picture:
    """Return the accuracy against traffic and against seconds of training."""
    panels = []
    for partition, name in PARTITIONS.items():
        places = {line: Place(line, partition=partition) for line in TABLE}
        label = evaluated_on(evidence, list(places.values()))
        for title, x_label, paid in (
            (f"{name}, traffic", "GB sent and received, all devices", by_gigabytes),
            (f"{name}, time", "seconds of training", by_seconds),
        ):
            shown = {
                (line_name(line), look_of(line)): place
                for line, place in places.items()
                if line != "central" or paid is by_seconds  # it sends nothing
            }
            curves, missing = courses(evidence, shown, paid)
            panels.append(Lines(title, x_label, label, curves, missing=missing))
    return Picture(
        panels,
        says="Seconds: all devices and the server, one after another on one thread, without a network; "
        "other runs went on beside them, and on several processors.",
    )


def by_gigabytes(result: Result) -> Sequence[tuple[float, float]]:
    """Return the accuracy by what was sent and received until then."""
    return [
        ((entry["bytes_sent"] + entry["bytes_received"]) / 1e9, 100 * entry["device_mean"])
        for entry in result["history"]
    ]


def by_seconds(result: Result) -> Sequence[tuple[float, float]]:
    """Return the accuracy by the seconds until then."""
    return [(entry["seconds"], 100 * entry["device_mean"]) for entry in result["history"]]


def readings(evidence: Evidence) -> Picture:
    """Return the accuracy of GAPSL read differently where the paper leaves something open."""
    shown = joined(evidence)
    found = {name: estimate(by_seed(evidence.runs(place), accuracy)) for name, place in shown.items()}
    rows = {name: each for name, each in found.items() if each is not None}
    missing = [name for name in shown if name not in rows]
    base = next(iter(shown))
    panel = Rows(
        "GAPSL, one thing changed at a time",
        TEST_ACCURACY,
        rows,
        rows.get(base),
        look_of("gapsl"),
        missing,
    )
    return Picture([panel], says=length_of(evidence), columns=1, height=1.2 + 0.22 * max(len(rows), 4))


def length_of(evidence: Evidence) -> str:
    """Say how long the readings are trained and on what tested, where that is less than everything else."""
    read = next(iter(evidence.scale.sweeps["readings"].values()))
    whole = evidence.scale.workloads["cifar10"].settings.get("rounds")
    if read.get("rounds") in (None, whole):
        return ""
    tested = f" and tested on {read['test_samples']:,} pictures" if "test_samples" in read else ""
    return (
        f"Trained for {read['rounds']} rounds instead of {whole}{tested}, our reading, too; at the learning "
        "rates of the longer runs."
    )


def joined(evidence: Evidence) -> dict[str, Place]:
    """Return the readings by name, ours first; what comes to the same runs has its names joined."""
    points = [point for point in evidence.points["readings"] if not point.searching]
    keys: dict[str, frozenset[str]] = {}
    for at in evidence.sweep("readings"):
        keys[at] = frozenset(point.run.key for point in points if point.at == at)
    groups: dict[frozenset[str], list[str]] = {}
    for at, own in keys.items():
        groups.setdefault(own, []).append(at)
    return {" = ".join(names): Place("gapsl", sweep="readings", at=names[0]) for names in groups.values()}
