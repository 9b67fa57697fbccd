"""Who is kept how often, and which classes are starved by it."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.analysis.diagnosis.evidence import Labels
from gapsl.analysis.diagnosis.exclusion import STARVED, reach
from gapsl.analysis.diagnosis.wording import percent
from gapsl_reproduction.report.evidence import Evidence, Place, Runs
from gapsl_reproduction.report.measures import over_devices, over_rounds
from gapsl_reproduction.report.naming import class_name, line_name
from gapsl_reproduction.report.page.markdown import paragraphs, table
from gapsl_reproduction.report.page.numbers import NOTHING
from gapsl_reproduction.store import Result

LINES = ("gapsl", "recommended gapsl", "non-lgi", "rand-lgi", "rand-gda")
LEGEND = (
    "CIFAR-10 at alpha 0.1. A device that is not kept in a round is not in the server's update, and its "
    "half learns nothing from its samples; in *recommended with GAPSL* it still goes to its leader on the "
    "probes. *Reached*: the share of a class's samples that got into the server's updates, from how often "
    "each device is kept and what labels it has. A class is starved where that is less than half of what it "
    "is on average."
)


def kept_shares(result: Result) -> dict[int, float]:
    """Return in which share of its rounds each device was kept."""
    shares = over_devices(result, "kept_share")
    return {device: share for device, share in enumerate(shares) if share is not None}


def reached(result: Result) -> NDArray[Any]:
    """Return the share of each class's samples that got into the server's updates."""
    counts = np.array(result["label_counts"])
    labels = Labels(counts, tuple(class_name(result, c) for c in range(counts.shape[1])))
    return reach(labels, kept_shares(result))


def starved(result: Result) -> list[int]:
    """Return the classes whose samples are left out with the devices that hold them, the worst first."""
    found = reached(result)
    usual = fmean(kept_shares(result).values())
    return [int(c) for c in np.argsort(found) if found[c] < STARVED * usual]


def exclusion(evidence: Evidence) -> str:
    """Return a table of methods, and one of GAPSL's seeds."""
    rows = []
    for line in LINES:
        known = {s: run for s, run in evidence.runs(Place(line)).items() if kept_shares(run)}
        rows.append(overview(line, known))
    ours = {s: run for s, run in evidence.runs(Place("gapsl")).items() if kept_shares(run)}
    headings = ["", "kept a round", "least to most kept device", "least to most reached class", "seeds"]
    parts = [LEGEND, table(headings, rows)]
    if ours:
        parts += [
            "**GAPSL, seed by seed**",
            table(
                ["seed", "kept a round", "device kept least", "starved classes"],
                map(of_seed, ours.values()),
                left=4,
            ),
        ]
    return paragraphs(*parts)


def overview(line: str, runs: Runs) -> list[str]:
    """Return one method's row, means over seeds."""
    if not runs:
        return [line_name(line), *[NOTHING] * 4]
    shares = [kept_shares(run) for run in runs.values()]
    classes = [reached(run) for run in runs.values()]
    return [
        line_name(line),
        kept(list(runs.values())),
        span(fmean(min(s.values()) for s in shares), fmean(max(s.values()) for s in shares)),
        span(fmean(float(np.nanmin(c)) for c in classes), fmean(float(np.nanmax(c)) for c in classes)),
        str(len(runs)),
    ]


def of_seed(result: Result) -> list[str]:
    """Return one run's row."""
    shares = kept_shares(result)
    least = min(shares, key=lambda device: shares[device])
    classes = reached(result)
    known = result["final"]["class_accuracy"]
    told = [
        f"{class_name(result, c)} (reached {percent(float(classes[c]))}"
        + ("" if known[c] is None else f", recognised {percent(known[c])}")
        + ")"
        for c in starved(result)
    ]
    return [
        str(result["seed"]),
        kept([result]),
        f"device {least}, {percent(shares[least])}",
        ", ".join(told) or "none",
    ]


def kept(runs: list[Result]) -> str:
    """Return how many devices are kept in a round, of how many."""
    mean = fmean(over_rounds(run, "kept") or 0.0 for run in runs)
    return f"{mean:.1f} of {len(runs[0]['label_counts'])}"


def span(low: float, high: float) -> str:
    """Return two shares in percent."""
    return f"{percent(low)} to {percent(high)}"
