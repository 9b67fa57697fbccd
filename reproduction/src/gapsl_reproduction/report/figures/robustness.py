"""Faulty devices: how the honest ones fare among them."""

from __future__ import annotations

from gapsl.analysis.diagnosis.wording import listed
from gapsl_reproduction.catalogue.contents import FACING_FAULTS, TOLD_APART
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.faulty import (
    KINDS,
    by_gradients,
    by_probes,
    ends,
    fault_places,
    faulty_with_most,
    with_most_faults,
)
from gapsl_reproduction.report.figures.parts import bars
from gapsl_reproduction.report.figures.sweeps import lines_by
from gapsl_reproduction.report.looks import Look, look_of
from gapsl_reproduction.report.measures import Measure, accuracy_without, faulty_devices
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.panels import Bars, Picture
from gapsl_reproduction.store import Result


def measured(evidence: Evidence, line: str, kind: str) -> dict[float, Place]:
    """Return the places of a line, without the one that has no faults while there is no other."""
    places = fault_places(evidence, line, kind)
    faulty = any(evidence.runs(place) for count, place in places.items() if count)
    return {float(count): place for count, place in places.items() if count or faulty}


def robustness(evidence: Evidence) -> Picture:
    """Return the accuracy of the honest devices by number of faulty ones, a panel a kind."""
    panels = []
    for kind, title in KINDS.items():
        places = {line: measured(evidence, line, kind) for line in FACING_FAULTS}
        ticks = {float(count): str(count) for count in fault_places(evidence, FACING_FAULTS[0], kind)}
        label = "accuracy of honest devices (%)"
        measure = always_honest(evidence, kind)
        panels.append(lines_by(evidence, title, "faulty devices", label, places, ticks, measure))
    says = (
        "On the test set, mean over the devices that are not faulty; where none is, over those that are not "
        "with the most faulty ones."
    )
    return Picture(panels, columns=3, says=says)


def always_honest(evidence: Evidence, kind: str) -> Measure:
    """Return the accuracy of honest devices: of a clean run, of those that are where the most are not."""
    faulty = {
        seed: devices
        for line in FACING_FAULTS
        for seed, devices in faulty_with_most(evidence, line, kind).items()
    }

    def measure(result: Result) -> float | None:
        return accuracy_without(result, faulty_devices(result) or faulty.get(result["seed"], ()))

    return measure


def separation(evidence: Evidence) -> Picture:
    """Return how well angles tell faulty devices from honest ones, by what the angles are of."""
    shown: dict[str, tuple[str, Look, Measure]] = {
        f"gradients, {line_name(line)}": (line, look_of(line), by_gradients) for line in TOLD_APART
    }
    shown["probes, recommended"] = ("recommended", Look("#7A5195"), by_probes)
    series, missing = [], []
    for label, (line, look, measure) in shown.items():
        places = {title: with_most_faults(evidence, line, kind) for kind, title in KINDS.items()}
        own, without = bars(evidence, label, look, places, measure, tried=True)
        series.append(own)
        missing += without
    most = (max(fault_places(evidence, TOLD_APART[0], kind)) for kind in KINDS)
    counts = " or ".join(str(count) for count in sorted({count for count in most if count}))
    title, label = "by mean angle to the others", "pairs told apart (%)"
    chance = ("by chance", 50.0)
    return Picture(
        [Bars(title, label, list(KINDS.values()), series, missing=missing, level=chance)],
        says="Of all pairs of a faulty and an honest device, those in which the faulty one is further from "
        f"the others: 100 always, 50 by chance, 0 never. Runs with {counts} faulty devices."
        + cut_short(evidence),
    )


def cut_short(evidence: Evidence) -> str:
    """Say which runs with the most faulty devices failed, and when."""
    found = []
    for kind, title in KINDS.items():
        places = [with_most_faults(evidence, line, kind) for line in TOLD_APART]
        told = [words for place in places if place is not None and (words := ends(evidence, place))]
        if told:
            found.append(f"with {title} {listed(told)}")
    return f" Runs that fail count as far as they go: {'; '.join(found)}." if found else ""
