"""`gapsl show`: what came out of a run or a comparison."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gapsl.analysis.comparison import runs_in
from gapsl.analysis.table import called, comparison, legend
from gapsl.cli import running
from gapsl.cli.running import output
from gapsl.common.errors import InputError
from gapsl.data import load_partition
from gapsl.network.processes import PROCESSES
from gapsl.run.folder import RunFolder
from gapsl.run.parts import take_source


def show(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a comparison's.")],
    plots: Annotated[
        bool, typer.Option("--plots", help="Draw curves, label split and angles as PNG.")
    ] = False,
    data_dir: running.DataDir = None,
) -> None:
    """Show results as a table, and with --plots as pictures in the folder."""
    if not finished_runs(folder):
        raise InputError(f"{folder} has no finished run in it; {how_to_finish(RunFolder(folder))}")
    show_runs(folder, plots=plots, data_dir=data_dir)


def how_to_finish(run: RunFolder) -> str:
    """Return the command that brings a run to its end."""
    fleet = run.path.parent
    if run.network_file.exists() and (fleet / PROCESSES).exists():
        return f"finish it with: gapsl fleet up --out {shlex.quote(str(fleet))}"
    if run.network_file.exists():
        return f"finish it with: gapsl serve --out {run.quoted}, with its --listen and --certs"
    if run.config_file.exists():
        return f"finish it with: gapsl resume {run.quoted}"
    return f"start one with: gapsl train --out {run.quoted} - or finish it with: gapsl resume {run.quoted}"


def finished_runs(folder: Path) -> list[RunFolder]:
    """Return the finished runs in a folder: the run itself, or the runs of a comparison."""
    return [run for run in runs_in(folder) if run.result_file.is_file()]


def show_runs(folder: Path, *, plots: bool, data_dir: str | None = None) -> None:
    """Print the table of a folder's runs, and draw them if asked."""
    runs = finished_runs(folder)
    results = [result for run in runs if (result := run.result()) is not None]
    output.print(comparison(results))
    output.print(legend(results), style="dim", highlight=False)
    if len(runs) == 1:
        tell_participation(runs[0])
    if plots:
        for path in draw(folder, runs, results, data_dir):
            output.print(f"drawn: {path}", highlight=False, markup=False, soft_wrap=True)


def tell_participation(run: RunFolder) -> None:
    """Say how often each device led and was kept, where the method chooses."""
    records = [record for record in run.records() if "kept" in record]
    if not records:
        return
    devices = range(len(records[0]["bytes_sent"]))
    for name in ("leader", "kept"):
        shares = [sum(d in record[name] for record in records) / len(records) for d in devices]
        cells = " ".join(f"{100 * share:3.0f}" for share in shares)
        output.print(f"{name + ' %':<9}by device: {cells}", highlight=False, markup=False, soft_wrap=True)


def draw(
    folder: Path, runs: list[RunFolder], results: list[dict[str, Any]], data_dir: str | None
) -> list[Path]:
    """Draw the pictures of a folder's runs; returns where they are."""
    from gapsl.analysis import plots  # an extra: imported only where it is asked for

    drawn = [folder / "curves.png"]
    plots.plot_curves(results, drawn[0])
    config, custom = runs[0].config()
    if "dataset" not in custom:
        if data_dir is not None:
            config = config.model_copy(update={"data_dir": data_dir})
        source = take_source(config, None)
        partition = load_partition(runs[0].partition_file)
        counts = partition.label_counts(source.train.labels, len(source.classes))
        drawn.append(folder / "labels.png")
        title = f"Samples by device and class: {config.dataset}, {config.partition}, seed {config.seed}"
        plots.plot_labels(counts, source.classes, drawn[-1], title=title)
    matrices: dict[str, list[np.ndarray[Any, Any]]] = {}
    for run, result in zip(runs, results, strict=True):
        found = plots.mean_angles(list(run.records()))
        if found is not None:
            matrices.setdefault(called(result), []).append(found)
    if matrices:
        drawn.append(folder / "angles.png")
        order = list(dict.fromkeys(called(result) for result in results))
        means = {m: np.nanmean(matrices[m], axis=0) for m in order if m in matrices}
        plots.plot_angles(means, drawn[-1])
    return drawn
