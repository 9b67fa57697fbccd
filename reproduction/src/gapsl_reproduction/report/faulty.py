"""Runs with faulty devices: where they are, how they end, and what they tell of the honest ones."""

from __future__ import annotations

from gapsl.analysis.diagnosis.wording import listed
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import faulty_devices, honest_accuracy, told_apart
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.store import Result

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


def with_most_faults(evidence: Evidence, line: str, kind: str) -> Place | None:
    """Return the place of the runs with the most faulty devices, None if the scale has none."""
    places = fault_places(evidence, line, kind)
    return places[max(places)] if max(places) else None


def honest_or_guessing(result: Result) -> float | None:
    """Return the mean accuracy of the honest devices, that of guessing if the run failed."""
    return 100 / len(result["label_counts"][0]) if "failed" in result else honest_accuracy(result)


def by_gradients(result: Result) -> float | None:
    """Return what the angles between gradients on the server tell."""
    return told_apart(result, "scores")


def by_probes(result: Result) -> float | None:
    """Return what the angles between the devices' answers to probes tell."""
    return told_apart(result, "probe_scores")


def ends(evidence: Evidence, place: Place) -> str:
    """Say in which rounds runs of a place failed; nothing if none did."""
    failed, tried = evidence.failed(place), evidence.tried(place)
    if not failed:
        return ""
    rounds = [run["rounds"] for run in failed.values()]
    some = f" with {len(failed)} of {len(tried)} seeds" if len(failed) < len(tried) else ""
    return f"{line_name(place.line)} fails{some} in round{'s' if len(rounds) > 1 else ''} {listed(rounds)}"


def faulty_with_most(evidence: Evidence, line: str, kind: str) -> dict[int, tuple[int, ...]]:
    """Return by seed who is faulty where the most devices are."""
    place = with_most_faults(evidence, line, kind)
    return {} if place is None else {s: faulty_devices(run) for s, run in evidence.tried(place).items()}
