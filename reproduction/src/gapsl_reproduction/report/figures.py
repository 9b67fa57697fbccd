"""The figures of the page: accuracy over epochs, accuracy by method, and one run of GAPSL looked into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import degrees
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapsl.analysis.looks import GREY, LOOKS
from gapsl.analysis.plots import figure, save
from gapsl_reproduction.report.frame import DATASETS, IID, SKEWED, Evidence, line_name

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
    """Draw accuracy over epochs at alpha 0.1: mean over seeds, and a band from the lowest to the highest."""
    known = {line: list(evidence.runs(line).values()) for line in ORDER if evidence.runs(line)}
    if not known:
        return None
    splits = {entry["split"] for runs in known.values() for run in runs for entry in run["history"]}
    where = "validation" if splits == {"validation"} else "test"
    drawn = figure(WIDTH, 3.9)
    axes = prepare(drawn.subplots(), "epoch", f"{where} accuracy, mean over devices (%)")
    ends: dict[str, tuple[float, float]] = {}
    for line, own in known.items():
        length = min(len(run["history"]) for run in own)
        epochs = [entry["epoch"] for entry in own[0]["history"][:length]]
        values = 100 * np.array([[e["device_mean"] for e in run["history"][:length]] for run in own])
        colour, dashes = LOOKS[line].colour, "--" if line == "central" else "-"
        axes.plot(epochs, values.mean(0), dashes, color=colour, linewidth=1.8, zorder=3)
        axes.fill_between(epochs, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)
        ends[line] = (epochs[-1], float(values.mean(0)[-1]))
    last, below = max(epoch for epoch, _ in ends.values()), -GAP
    for line, (_, value) in sorted(ends.items(), key=lambda item: item[1][1]):
        below = max(value, below + GAP)  # no name over another
        axes.text(1.01 * last, below, line_name(line), va="center", fontsize=SMALL, color=LOOKS[line].colour)
    axes.set(ylim=(0, None), xlim=(0, last))
    axes.locator_params(axis="x", integer=True)
    axes.set_title(f"{title(evidence)}, {SKEWED}; bands: lowest to highest seed", fontsize=9.5)
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
        axes.set_title("IID" if at == IID else at, fontsize=9.5)
    row[0].set_yticks(range(len(lines)), [line_name(line) for line in lines])
    row[0].set(xlim=(0, 100))
    row[0].invert_yaxis()
    drawn.suptitle(f"{title(evidence)}; dots: seeds", fontsize=9.5)
    return drawn


def understood(evidence: Evidence) -> Figure | None:
    """Draw one run of GAPSL: who is kept, the angles that decide it, and the accuracy beside PSL's."""
    run = next(iter(evidence.runs("gapsl").values()), None)
    windows = [window for window in run["windows"] if "kept_share" in window] if run else []
    if run is None or not windows:
        return None
    epochs = [window["round"] / run["rounds_per_epoch"] for window in windows]
    drawn = figure(WIDTH + 1.4, 2.9)
    left, middle, right = drawn.subplots(1, 3)
    shares = 100 * np.array([window["kept_share"] for window in windows], dtype=float).T
    places = np.arange(len(shares) + 1) - 0.5
    prepare(left, "epoch", "device").grid(visible=False)
    image = left.pcolormesh([0.0, *epochs], places, shares, cmap="Blues", vmin=0, vmax=100)
    left.set_yticks(range(0, len(shares), 1 if len(shares) <= 10 else 5))
    left.set_title("rounds in which it is kept (%)", fontsize=SMALL)
    drawn.colorbar(image, ax=left).ax.tick_params(labelsize=SMALL)
    prepare(middle, "epoch", "angle (degrees)").margins(y=0.3)
    for name, label, dashes in (
        ("angle_mean", "between two devices, mean", "-"),
        ("threshold", "threshold around the leader", "--"),
    ):
        known = [(epoch, degrees(w[name])) for epoch, w in zip(epochs, windows, strict=True) if name in w]
        middle.plot(*zip(*known, strict=True), dashes, color=LOOKS["gapsl"].colour, label=label)
    middle.axhline(90, color=GREY, linewidth=0.8, linestyle=":")
    prepare(right, "epoch", "accuracy (%)")
    for line in ("gapsl", "psl"):
        other = evidence.runs(line).get(run["seed"])
        if other is not None:
            course = [(entry["epoch"], 100 * entry["device_mean"]) for entry in other["history"]]
            right.plot(*zip(*course, strict=True), color=LOOKS[line].colour, label=LOOKS[line].name)
    right.set_ylim(bottom=0)
    for axes in (middle, right):
        axes.set_xlim(left=0)
        axes.legend(frameon=False, fontsize=SMALL - 1)
    drawn.suptitle(f"GAPSL, {title(evidence)}, {SKEWED}, seed {run['seed']}", fontsize=9.5)
    return drawn


FIGURES: Mapping[str, tuple[str, Callable[[Evidence], Figure | None]]] = {
    "curves": ("Accuracy over epochs at alpha 0.1.", curves),
    "methods": ("Accuracy by method, IID and at alpha 0.1.", bars),
    "gapsl": ("One run of GAPSL: who is kept, the angles, and the accuracy.", understood),
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
