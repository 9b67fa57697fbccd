"""The figures of the page: accuracy over epochs, accuracy by method, and one run of GAPSL looked into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import degrees
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapsl.analysis.looks import GREY, LOOKS
from gapsl.analysis.plots import figure, save
from gapsl_reproduction.report.frame import (
    DATASETS,
    EXCLUDING,
    IID,
    SKEWED,
    Evidence,
    line_name,
    over_devices,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDER = ("central", "papsl", "frozen", "sfl", "gapsl", "psl", "epsl", "vanilla")
SMALL = 8.5
WIDTH = 7.6  # inches
GAP = 3.6  # points between two names at the ends of curves


def prepare(axes: Axes, x: str, y: str = "") -> Axes:
    """Give a panel the quiet look that all have."""
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.set_xlabel(x, fontsize=SMALL)
    axes.set_ylabel(y, fontsize=SMALL)
    return axes


def title(evidence: Evidence) -> str:
    """Return the dataset and the model at this scale."""
    dataset = evidence.scale.workloads["cifar10"].settings["dataset"]
    return f"{DATASETS.get(dataset, dataset)}, {evidence.scale.model}"


def curves(evidence: Evidence) -> Figure | None:
    """Draw accuracy over rounds at alpha 0.1: mean over seeds, and a band from the lowest to the highest."""
    known = {line: list(evidence.runs(line).values()) for line in ORDER if evidence.runs(line)}
    if not known:
        return None
    splits = {entry["split"] for runs in known.values() for run in runs for entry in run["history"]}
    where = "validation" if splits == {"validation"} else "test"
    drawn = figure(WIDTH, 3.9)
    axes = prepare(drawn.subplots(), "round", f"{where} accuracy, mean over devices (%)")
    ends: dict[str, tuple[int, float]] = {}
    for line, own in known.items():
        length = min(len(run["history"]) for run in own)
        rounds = [entry["round"] for entry in own[0]["history"][:length]]
        values = 100 * np.array([[e["device_mean"] for e in run["history"][:length]] for run in own])
        colour, dashes = LOOKS[line].colour, "--" if line == "central" else "-"
        axes.plot(rounds, values.mean(0), dashes, color=colour, linewidth=1.8, zorder=3)
        axes.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)
        ends[line] = (rounds[-1], float(values.mean(0)[-1]))
    last, below = max(rounds for rounds, _ in ends.values()), -GAP
    for line, (_, value) in sorted(ends.items(), key=lambda item: item[1][1]):
        below = max(value, below + GAP)  # no name over another
        name = f"{line_name(line)} ({len(known[line])})"
        axes.text(1.01 * last, below, name, va="center", fontsize=SMALL, color=LOOKS[line].colour)
    axes.set(ylim=(0, None), xlim=(0, last))
    axes.locator_params(axis="x", integer=True)
    axes.set_title(f"{title(evidence)}, {SKEWED}; (seeds), bands: lowest to highest", fontsize=9.5)
    return drawn


def bars(evidence: Evidence) -> Figure | None:
    """Draw final test accuracy by method, IID and at alpha 0.1; each seed is a dot."""
    found = {at: {line: evidence.values(line, at) for line in ORDER} for at in (IID, SKEWED)}
    lines = [line for line in ORDER if any(own[line] for own in found.values())]
    panels = {at: own for at, own in found.items() if any(own.values())}
    if not panels:
        return None
    drawn = figure(WIDTH, 0.9 + 0.3 * len(lines))
    row = drawn.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (at, own) in zip(row, panels.items(), strict=True):
        prepare(axes, "test accuracy, mean over devices (%)").grid(axis="y", visible=False)
        for place, line in enumerate(lines):
            values = list(own[line].values())
            if values:
                centre = float(np.mean(values))
                axes.barh(place, centre, color=LOOKS[line].colour, alpha=0.8, height=0.7)
                spots = place + 0.16 * (np.arange(len(values)) - (len(values) - 1) / 2)
                axes.plot(values, spots, "o", color="black", markersize=3, markerfacecolor="white")
                axes.text(max(values) + 2, place, f"{centre:.1f}", va="center", fontsize=SMALL)
            else:
                axes.text(2, place, "not run", va="center", fontsize=SMALL, color=GREY)
        axes.set_title("IID" if at == IID else at, fontsize=9.5)
    row[0].set_yticks(range(len(lines)), [line_name(line) for line in lines])
    row[0].set(xlim=(0, 100))
    row[0].invert_yaxis()
    drawn.suptitle(f"{title(evidence)}; dots: seeds", fontsize=9.5)
    return drawn


def understood(evidence: Evidence) -> Figure | None:
    """Draw one run of GAPSL that leaves devices out: who is kept, the angles, what becomes of the devices."""
    run = next(iter(evidence.runs(EXCLUDING).values()), None)
    windows = [window for window in run["windows"] if "kept_share" in window] if run else []
    if run is None or not windows:
        return None
    ends = [0, *(window["round"] for window in windows)]
    shares = 100 * np.array([window["kept_share"] for window in windows], dtype=float).T
    means = [100 * (share or 0.0) for share in over_devices(run, "kept_share")]
    order = np.argsort(means)
    drawn = figure(WIDTH + 1.4, 3.0)
    left, middle, right = drawn.subplots(1, 3)

    places = np.arange(len(shares) + 1) - 0.5
    prepare(left, "round", "device").grid(visible=False)
    image = left.pcolormesh(ends, places, shares[order], cmap="Blues", vmin=0, vmax=100)
    left.set_yticks(range(len(order)), [str(device) for device in order] if len(order) <= 10 else [])
    left.set_title("kept, in % of the rounds", fontsize=SMALL)
    drawn.colorbar(image, ax=left).ax.tick_params(labelsize=SMALL)

    prepare(middle, "round").margins(y=0.3)
    for name, label, dashes in (
        ("angle_mean", "between two devices, mean", "-"),
        ("threshold", "to the leader, at most, to be kept", "--"),
    ):
        known = [(w["round"], degrees(w[name])) for w in windows if name in w]
        middle.plot(*zip(*known, strict=True), dashes, color=LOOKS["gapsl"].colour, label=label)
    middle.axhline(90, color=GREY, linewidth=0.8, linestyle=":")
    middle.set_xlim(left=0)
    middle.set_title("angles of gradients (degrees)", fontsize=SMALL)

    prepare(right, "kept by GAPSL, in % of the rounds")
    for line, label in ((EXCLUDING, "GAPSL"), ("psl", "PSL, the same devices")):
        other = evidence.runs(line).get(run["seed"])
        if other is not None:
            reached = [100 * (value or 0.0) for value in other["final"]["device_accuracy"]]
            right.plot(means, reached, "o", color=LOOKS[line.split()[0]].colour, markersize=5, label=label)
    right.set(xlim=(0, None), ylim=(0, None))
    right.set_title("test accuracy of each device (%)", fontsize=SMALL)
    right.margins(y=0.3)
    for axes in (middle, right):
        axes.legend(frameon=False, fontsize=SMALL - 1)
    name = line_name(EXCLUDING)
    drawn.suptitle(f"{name}, {title(evidence)}, {SKEWED}, seed {run['seed']}", fontsize=9.5)
    return drawn


FIGURES: Mapping[str, tuple[str, Callable[[Evidence], Figure | None]]] = {
    "curves": ("Accuracy over rounds at alpha 0.1.", curves),
    "methods": ("Accuracy by method, IID and at alpha 0.1.", bars),
    "gapsl": ("One run of GAPSL: who is kept, the angles, and what becomes of the devices.", understood),
}


def draw_all(evidence: Evidence, folder: Path) -> list[str]:
    """Draw every figure that has something to show, remove the others, and return the names."""
    names = []
    for name, (_, draw) in FIGURES.items():
        path, drawn = folder / f"{name}.png", draw(evidence)
        if drawn is None:
            path.unlink(missing_ok=True)
        else:
            save(drawn, path)
            names.append(name)
    return names
