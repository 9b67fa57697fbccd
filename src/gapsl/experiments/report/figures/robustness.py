"""Faulty devices: how the honest ones fare among them."""

from __future__ import annotations

from gapsl.diagnosis.wording import listed
from gapsl.experiments.catalogue.contents import FACING_FAULTS, TOLD_APART
from gapsl.experiments.report.evidence import Evidence, Place, Runs
from gapsl.experiments.report.figures.parts import bars
from gapsl.experiments.report.figures.sweeps import lines_by
from gapsl.experiments.report.looks import Look, look_of
from gapsl.experiments.report.measures import Measure, honest_accuracy, told_apart
from gapsl.experiments.report.naming import line_name
from gapsl.experiments.report.panels import Bars, Picture
from gapsl.experiments.store import Result

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
        places = {line: measured(evidence, line, kind) for line in FACING_FAULTS}
        ticks = {float(count): str(count) for count in fault_places(evidence, FACING_FAULTS[0], kind)}
        label = "accuracy of honest devices (%)"
        panels.append(lines_by(evidence, title, "faulty devices", label, places, ticks, honest_accuracy))
    return Picture(panels, columns=3, says="On the test set, mean over the devices that are not faulty.")


def separation(evidence: Evidence) -> Picture:
    """Return how well angles tell faulty devices from honest ones, by what the angles are of."""
    shown: dict[str, tuple[str, Look, Measure]] = {
        f"gradients, {line_name(line)}": (line, look_of(line), by_gradients) for line in TOLD_APART
    }
    shown["probes, recommended"] = ("recommended", Look("#7A5195"), by_probes)
    series, missing = [], []
    for label, (line, look, measure) in shown.items():
        places = {title: with_most_faults(evidence, line, kind) for kind, title in KINDS.items()}
        own, without = bars(evidence, label, look, places, measure, failed=True)
        series.append(own)
        missing += without
    most = (max(fault_places(evidence, TOLD_APART[0], kind)) for kind in KINDS)
    counts = " or ".join(str(count) for count in sorted({count for count in most if count}))
    label = "pairs told apart (%)"
    return Picture(
        [Bars("by mean angle to the others", label, list(KINDS.values()), series, missing=missing)],
        says="Of all pairs of a faulty and an honest device, those in which the faulty one is further from "
        f"the others: 100 always, 50 by chance, 0 never. Runs with {counts} faulty devices."
        + cut_short(evidence),
    )


def cut_short(evidence: Evidence) -> str:
    """Say which runs with the most faulty devices failed, and when."""
    found = []
    for kind, title in KINDS.items():
        places = {line: with_most_faults(evidence, line, kind) for line in TOLD_APART}
        failed = {line: evidence.failed(place) for line, place in places.items() if place is not None}
        ends = [f"{line_name(line)} {end_of(runs)}" for line, runs in failed.items() if runs]
        if ends:
            found.append(f"with {title} {listed(ends)}")
    return f" Runs that fail count as far as they go: {'; '.join(found)}." if found else ""


def end_of(runs: Runs) -> str:
    """Say in which round runs ended before their time."""
    rounds = [run["rounds"] for run in runs.values()]
    return f"in round{'s' if len(rounds) > 1 else ''} {listed(rounds)}"


def by_gradients(result: Result) -> float | None:
    """Return what the angles between gradients on the server tell."""
    return told_apart(result, "scores")


def by_probes(result: Result) -> float | None:
    """Return what the angles between the devices' answers to probes tell."""
    return told_apart(result, "probe_scores")


def with_most_faults(evidence: Evidence, line: str, kind: str) -> Place | None:
    """Return the place of the runs with the most faulty devices, None if the scale has none."""
    places = fault_places(evidence, line, kind)
    return places[max(places)] if max(places) else None
