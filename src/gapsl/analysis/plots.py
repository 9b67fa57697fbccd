"""Pictures of runs: accuracy curves, who has which labels, angles between gradients, confusion."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapsl.analysis.labels import read_labels
from gapsl.analysis.looks import GREY, looks_of, shade
from gapsl.analysis.runs import Group, RunSummary, grouped, stored_settings, varying
from gapsl.analysis.tables import label, title
from gapsl.common.errors import InputError
from gapsl.run.records import RoundRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "svg", "pdf")
MARKERS = "osD^vPX"  # of the first, second, ... curve of one method
LEGEND = 34  # letters in a line of a legend
ABREAST = 3  # panels in a row: more are too small to see anything in
UNKNOWN = "0.85"  # grey of a cell that has no number: a device and itself, a class without samples
SMALL = 9
Matrix = NDArray[np.float64]


def figure(width: float, height: float) -> Figure:
    """Return an empty figure that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError('plots need matplotlib; pip install "gapsl[plots]"') from None
    made = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(made)
    return made


def save(drawn: Figure, path: Path) -> None:
    """Write a figure, or say why not; the same figure is the same file, whenever it is written."""
    from matplotlib import rc_context

    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({"svg.hashsalt": "gapsl"}):
            drawn.savefig(path, metadata=undated)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot draw into {path}: {error}; name a .png in a folder you may write") from None


def draw_runs(
    folder: Path, runs: Sequence[RunSummary], kinds: Sequence[str] = ("png",), data_dir: str | None = None
) -> Iterator[str]:
    """Draw runs into a folder, and yield what was drawn and what could not be."""
    kinds = [kind.strip() for kind in kinds]
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise InputError(f"pictures can be {', '.join(KINDS)}, not {', '.join(unknown) or 'nothing'}")
    groups = grouped(runs)
    names = varying(groups)
    about = title(groups, names)
    pictures: dict[str, Figure | str] = {
        "curves": curves(groups, names, about),
        "labels": labels_picture(runs[0], data_dir),
        "angles": angles_picture(groups, names, about),
        "confusion": confusion_picture(groups, names, about),
    }
    for name, drawn in pictures.items():
        if isinstance(drawn, str):
            yield f"not drawn: {name} ({drawn})"
            continue
        for kind in kinds:
            save(drawn, folder / f"{name}.{kind}")
            yield f"drawn: {folder / name}.{kind}"


def curves(groups: Sequence[Group], names: Sequence[str], about: str) -> Figure | str:
    """Draw accuracy over the rounds, a line per group, with a band over its seeds.

    Where no group has two seeds, the band is from the worst to the best device instead.
    """
    groups = [group for group in groups if any(run.history for run in group.runs)]
    if not groups:
        return "no run was evaluated yet"
    several = any(len(group.runs) > 1 for group in groups)
    looks = looks_of(dict.fromkeys(group.name for group in groups))
    called = [group.name for group in groups]
    drawn = figure(8.6, 4.2)
    axes = drawn.subplots()
    together = False
    for number, group in enumerate(groups):
        variant = called[:number].count(group.name)
        colour = shade(looks[group.name].colour, variant)
        rounds, accuracy = course(group, "device_mean")
        middle = accuracy.mean(axis=0)
        marks: Any = {"linewidth": 2, "marker": MARKERS[variant % len(MARKERS)], "markersize": 4}
        called_so = textwrap.fill(label(group, names), LEGEND)
        axes.plot(rounds, middle, label=called_so, color=colour, **marks)
        if len(accuracy) > 1:
            spread = accuracy.std(axis=0, ddof=1)
            band(axes, rounds, middle - spread, middle + spread, colour)
        elif not several:
            low, high = (course(group, name)[1][0] for name in ("device_min", "device_max"))
            band(axes, rounds, low, high, colour)
        ensemble = course(group, "ensemble")[1].mean(axis=0)
        if len(set(called)) == len(called) and np.nanmax(np.abs(ensemble - middle), initial=0) > 0.5:
            axes.plot(rounds, ensemble, color=colour, linewidth=1, linestyle="--")
            together = True
    if together:
        axes.plot([], [], color=GREY, linewidth=1, linestyle="--", label="ensemble of the devices")
    meaning = "± standard deviation over seeds" if several else "worst to best device"
    axes.fill_between([], [], [], color=GREY, alpha=0.2, label=meaning)
    split = next(run.history[-1].split for group in groups for run in group.runs if run.history)
    axes.set(xlabel="round", ylabel=f"mean accuracy of the devices (%, {split} set)", ylim=(0, 100))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title(about, fontsize=SMALL + 1)
    return drawn


def course(group: Group, name: str) -> tuple[Matrix, Matrix]:
    """Return rounds, and a measure in percent of each seed at them, up to where the shortest run is.

    Runs that differ in the seed alone are evaluated at the same rounds, or after the same epochs.
    """
    histories = [run.history for run in group.runs if run.history]
    length = min(map(len, histories))
    rounds = np.mean([[entry.round for entry in one[:length]] for one in histories], axis=0)
    values = [[getattr(entry, name) for entry in one[:length]] for one in histories]
    return rounds, 100 * np.array(values, dtype=float)  # None becomes NaN, and a gap in the line


def band(axes: Axes, rounds: Matrix, low: Matrix, high: Matrix, colour: str) -> None:
    """Draw a band that stays between 0 and 100 %."""
    axes.fill_between(rounds, low.clip(0), high.clip(max=100), color=colour, alpha=0.15, linewidth=0)


def labels_picture(run: RunSummary, data_dir: str | None) -> Figure | str:
    """Draw who has which labels in a run."""
    if run.folder is None:
        return "the run has no files"
    found, why_not = read_labels(run.folder, stored_settings(run.folder), data_dir)
    if found is None:
        return why_not
    about = f"{run.settings['dataset']}, {run.settings['partition']}, seed {run.seed}"
    return labels_figure(found.counts, found.classes, f"Samples by device and class: {about}")


def plot_labels(counts: np.ndarray[Any, Any], classes: Sequence[str], path: Path, *, title: str = "") -> None:
    """Draw how many samples of each class each device has into a file."""
    save(labels_figure(counts, classes, title or "Samples by device and class"), path)


def labels_figure(counts: np.ndarray[Any, Any], classes: Sequence[str], title: str) -> Figure:
    """Draw how many samples of each class each device has."""
    devices, labels = counts.shape
    drawn = figure(min(12.0, max(4.5, 2.6 + 0.42 * labels)), min(12.0, 1.6 + 0.36 * devices))
    axes = drawn.subplots()
    image = axes.imshow(counts, cmap="Blues", aspect="auto")
    axes.set(xlabel="class", ylabel="device")
    axes.set_title(title, fontsize=SMALL + 1)
    name_classes(axes, classes, rows=False)
    if devices <= 20:
        axes.set_yticks(range(devices))
        if labels <= 20:
            write_cells(axes, counts, most=counts.max())
    drawn.colorbar(image, ax=axes, label="samples")
    return drawn


def angles_picture(groups: Sequence[Group], names: Sequence[str], about: str) -> Figure | str:
    """Draw the mean angle between every two devices' gradients, a panel per group."""
    matrices = {}
    for group in groups:
        run = group.runs[0]  # another seed deals other labels to the same device
        angles = mean_angles(list(run.folder.records())) if run.folder is not None else None
        if angles is not None and not np.isnan(angles).all():
            matrices[f"{label(group, names)}, seed {run.seed}"] = np.degrees(angles)
    if not matrices:
        return "no angles were measured"
    # Around a right angle, on both sides as far as the angles go: that is where they differ.
    reach = max(5.0, *(float(np.nanmax(np.abs(angles - 90))) for angles in matrices.values()))
    drawn, panels = grid(len(matrices))
    for axes, (name, angles) in zip(panels, matrices.items(), strict=True):
        image = axes.imshow(angles, cmap="RdBu_r", vmin=90 - reach, vmax=90 + reach)
        axes.set_title(f"{name}\nmean {np.nanmean(angles):.0f}°", fontsize=SMALL)
        if len(angles) <= 10:
            axes.set_xticks(range(len(angles)))
            axes.set_yticks(range(len(angles)))
    name_axes(panels, "device", "device")
    drawn.colorbar(image, ax=panels, label="angle between gradients (degrees)")
    drawn.suptitle(about, fontsize=SMALL + 1)
    return drawn


def mean_angles(records: Sequence[RoundRecord]) -> Matrix | None:
    """Return the angles between every two devices' gradients, averaged over the rounds both took part in."""
    measured = [record for record in records if record.angles is not None]
    if not measured:
        return None
    size = len(measured[0].bytes_sent)
    total, count = np.zeros((size, size)), np.zeros((size, size))
    for record in measured:
        assert record.angles is not None
        present = np.array(record.angles.devices)
        total[np.ix_(present, present)] += np.array(record.angles.matrix())
        count[np.ix_(present, present)] += 1
    np.fill_diagonal(count, 0)  # no angle
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def confusion_picture(groups: Sequence[Group], names: Sequence[str], about: str) -> Figure | str:
    """Draw in which share of its samples a class is taken for which, a panel per group."""
    stored = [group for group in groups if group.confusion is not None]
    if not stored:
        return "no run has stored which class is taken for which"
    drawn, panels = grid(len(stored))
    for axes, group in zip(panels, stored, strict=True):
        counts = group.confusion
        assert counts is not None
        samples = counts.sum(axis=1, keepdims=True)
        shares = np.divide(100.0 * counts, samples, out=np.full(counts.shape, np.nan), where=samples > 0)
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        axes.set_title(label(group, names), fontsize=SMALL)
        name_classes(axes, group.classes)
        if len(shares) <= 10:
            write_cells(axes, np.nan_to_num(shares).round().astype(int), most=100, size=5)
    name_axes(panels, "predicted", "true")
    drawn.colorbar(image, ax=panels, label="% of the true class")
    drawn.suptitle(about, fontsize=SMALL + 1)
    return drawn


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many square panels, at most three abreast."""
    columns = abreast(count)
    rows = -(-count // columns)
    drawn = figure(max(4.6, 1.2 + 2.9 * columns), 0.6 + 3.1 * rows)
    drawn.set_layout_engine("compressed")  # panels are square, whatever room there is
    panels = list(np.atleast_1d(drawn.subplots(rows, columns)).flat)
    for empty in panels[count:]:
        empty.remove()
    for axes in panels[:count]:
        axes.set_facecolor(UNKNOWN)  # seen where there is no number
    return drawn, panels[:count]


def abreast(count: int) -> int:
    """Return how many of so many panels are in a row; four are a square."""
    return 2 if count == 4 else min(count, ABREAST)


def name_axes(panels: Sequence[Axes], x: str, y: str) -> None:
    """Name the axes of panels at the edges of their grid, so that no name runs into another panel."""
    columns = abreast(len(panels))
    for place, axes in enumerate(panels):
        axes.set_xlabel(x if place + columns >= len(panels) else "")
        axes.set_ylabel(y if place % columns == 0 else "")


def name_classes(axes: Axes, classes: Sequence[str], *, rows: bool = True) -> None:
    """Write the classes' names at the axes, where there are few enough to be read."""
    if len(classes) > 20:
        return
    turned = 90 if max(map(len, classes), default=0) > 3 else 0
    axes.set_xticks(range(len(classes)), classes, rotation=turned, fontsize=SMALL - 1)
    if rows:
        axes.set_yticks(range(len(classes)), classes, fontsize=SMALL - 1)


def write_cells(axes: Axes, values: np.ndarray[Any, Any], *, most: float, size: int = 7) -> None:
    """Write each number that is not zero into its cell, to be read on the colour of a share of `most`."""
    for i, j in np.argwhere(values > 0):
        tone = "white" if values[i, j] > most / 2 else "black"
        axes.text(j, i, str(values[i, j]), ha="center", va="center", fontsize=size, color=tone)
