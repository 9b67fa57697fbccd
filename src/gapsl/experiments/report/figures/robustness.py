"""Faulty devices: how the honest ones fare among them."""

from __future__ import annotations

from gapsl.experiments.catalogue.contents import FACING_FAULTS
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.figures.sweeps import lines_by
from gapsl.experiments.report.measures import honest_accuracy
from gapsl.experiments.report.panels import Picture
from gapsl.experiments.report.shown import distinct

KINDS = {
    "flip": "flipped gradients",
    "labels": "random labels",
    "noise": "noise for activations",
}


def fault_places(evidence: Evidence, line: str, kind: str) -> dict[int, Place]:
    """Return the places of a line by number of faulty devices, none first."""
    found = {0: Place(line)}
    for at in evidence.sweep("faults"):
        name, _, count = at.partition(":")
        if name == kind:
            found[int(count)] = Place(line, sweep="faults", at=at)
    return found


def measured(evidence: Evidence, line: str, kind: str) -> dict[float, Place]:
    """Return the places of a line, without the one that has no faults while there is no other."""
    places = fault_places(evidence, line, kind)
    faulty = any(evidence.runs(place) for count, place in places.items() if count)
    return {float(count): place for count, place in places.items() if count or faulty}


def robustness(evidence: Evidence) -> Picture:
    """Return the accuracy of the honest devices by number of faulty ones, a panel a kind."""
    panels = []
    for kind, title in KINDS.items():
        places = {line: measured(evidence, line, kind) for line in distinct(FACING_FAULTS)}
        ticks = {float(count): str(count) for count in fault_places(evidence, FACING_FAULTS[0], kind)}
        label = "accuracy of honest devices (%)"
        panels.append(lines_by(evidence, title, "faulty devices", label, places, ticks, honest_accuracy))
    return Picture(panels, columns=3, says="On the test set, mean over the devices that are not faulty.")
