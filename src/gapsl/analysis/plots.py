"""Pictures of runs: accuracy curves, who has which labels, and the angles between gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapsl.analysis.looks import looks_of
from gapsl.common.errors import InputError
from gapsl.data import load_partition
from gapsl.run.folder import RunFolder
from gapsl.run.parts import take_source
from gapsl.run.records import RoundRecord, RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    undated = {"Date": None} if path.suffix == ".svg" else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({"svg.hashsalt": "gapsl"}):
            drawn.savefig(path, metadata=undated)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot draw into {path}: {error}; name a .png in a folder you may write") from None


def draw_runs(folder: Path, runs: Sequence[RunFolder], data_dir: str | None = None) -> list[Path]:
    """Draw finished runs into a folder: curves, labels and angles; returns the files."""
    results = [result for run in runs if (result := run.result()) is not None]
    drawn = [folder / "curves.png"]
    plot_curves(results, drawn[0])
    config, custom = runs[0].config()
    if "dataset" not in custom:
        if data_dir is not None:
            config = config.model_copy(update={"data_dir": data_dir})
        source = take_source(config, None)
        counts = load_partition(runs[0].partition_file).label_counts(source.train.labels, len(source.classes))
        drawn.append(folder / "labels.png")
        title = f"Samples by device and class: {config.dataset}, {config.partition}, seed {config.seed}"
        plot_labels(counts, source.classes, drawn[-1], title=title)
    matrices: dict[str, list[np.ndarray[Any, Any]]] = {}
    for run, result in zip(runs, results, strict=True):
        angles = mean_angles(list(run.records()))
        if angles is not None:
            matrices.setdefault(result.called, []).append(angles)
    if matrices:
        drawn.append(folder / "angles.png")
        plot_angles({method: np.nanmean(found, axis=0) for method, found in matrices.items()}, drawn[-1])
    return drawn


def plot_curves(results: Sequence[RunResult], path: Path) -> None:
    """Draw device_mean over the rounds, the band from the worst to the best device, and the ensemble."""
    methods: dict[str, list[RunResult]] = {}
    for result in results:
        methods.setdefault(result.called, []).append(result)
    drawn = figure(7.2, 4.2)
    axes = drawn.subplots()
    looks = looks_of(methods)
    for method, runs in methods.items():
        colour = looks[method].colour
        rounds = [entry.round for entry in runs[0].history]
        mean, low, high, ensemble = (
            100 * np.mean([[getattr(entry, name) for entry in run.history] for run in runs], axis=0)
            for name in ("device_mean", "device_min", "device_max", "ensemble")
        )
        axes.plot(rounds, mean, color=colour, label=looks[method].name, linewidth=2, marker="o", markersize=3)
        axes.fill_between(rounds, low, high, color=colour, alpha=0.12, linewidth=0)
        if not np.allclose(mean, ensemble):
            axes.plot(rounds, ensemble, color=colour, linewidth=1, linestyle="--")
    axes.set(xlabel="round", ylabel="accuracy (%)", ylim=(0, 100))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.plot([], [], color="grey", linewidth=1, linestyle="--", label="ensemble of devices")
    axes.fill_between([], [], [], color="grey", alpha=0.2, label="worst to best device")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title("Accuracy of the devices' halves with the server's, mean over devices", fontsize=10)
    save(drawn, path)


def plot_labels(counts: np.ndarray[Any, Any], classes: Sequence[str], path: Path, *, title: str = "") -> None:
    """Draw how many samples of each class each device has."""
    devices, labels = counts.shape
    drawn = figure(min(12.0, 2.6 + 0.42 * labels), min(12.0, 1.6 + 0.36 * devices))
    axes = drawn.subplots()
    image = axes.imshow(counts, cmap="Blues", aspect="auto")
    axes.set(xlabel="class", ylabel="device", title=title or "Samples by device and class")
    axes.title.set_fontsize(10)
    if labels <= 20:
        axes.set_xticks(range(labels), classes, rotation=45 if max(map(len, classes)) > 3 else 0, ha="center")
    if devices <= 20:
        axes.set_yticks(range(devices))
    if labels <= 20 and devices <= 20:
        for i, j in np.argwhere(counts > 0):
            tone = "white" if counts[i, j] > counts.max() / 2 else "black"
            axes.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=7, color=tone)
    drawn.colorbar(image, ax=axes, label="samples")
    save(drawn, path)


def plot_angles(matrices: Mapping[str, np.ndarray[Any, Any]], path: Path) -> None:
    """Draw the mean angle between every two devices' gradients, a panel a method (radians given)."""
    drawn = figure(2.2 + 2.9 * len(matrices), 3.6)
    drawn.set_layout_engine("compressed")  # panels are square, whatever room there is
    panels = np.atleast_1d(drawn.subplots(1, len(matrices)))
    for axes, (method, angles) in zip(panels, matrices.items(), strict=True):
        degrees = np.degrees(angles)
        pairs = degrees[~np.eye(len(degrees), dtype=bool)]
        image = axes.imshow(degrees, cmap="RdBu_r", vmin=0, vmax=180)
        axes.set_title(f"{method}\nmean {np.nanmean(pairs):.0f}°", fontsize=10)
        axes.set(xlabel="device")
        if len(degrees) <= 10:
            axes.set_xticks(range(len(degrees)))
            axes.set_yticks(range(len(degrees)))
    panels[0].set_ylabel("device")
    drawn.colorbar(image, ax=list(panels), label="angle (degrees)", ticks=[0, 45, 90, 135, 180])
    save(drawn, path)


def mean_angles(records: Sequence[RoundRecord]) -> np.ndarray[Any, Any] | None:
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
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
