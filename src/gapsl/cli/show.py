"""`gapsl show`: what came out of a run or a comparison."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gapsl.analysis.comparison_folder import runs_in
from gapsl.analysis.tables import legend, participation, results_table
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.common.errors import InputError
from gapsl.network.processes import PROCESSES
from gapsl.run.folder import RunFolder
from gapsl.run.records import RunResult


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
        return f"finish it with: {run.go_on}, with its --listen and --certs"
    if run.config_file.exists():
        return f"finish it with: {run.go_on}"
    return f"start one with: gapsl train --out {run.quoted} - or finish it with: gapsl resume {run.quoted}"


def finished_runs(folder: Path) -> list[RunFolder]:
    """Return the finished runs in a folder: the run itself, or the runs of a comparison."""
    return [run for run in runs_in(folder) if run.result_file.is_file()]


def show_runs(folder: Path, *, plots: bool, data_dir: str | None = None) -> None:
    """Print the table of a folder's finished runs, and draw them if asked."""
    runs = finished_runs(folder)
    print_results([result for run in runs if (result := run.result()) is not None])
    if len(runs) == 1:
        for line in participation(list(runs[0].records())):
            say(line)
    if plots:
        from gapsl.analysis.plots import draw_runs  # an extra: imported only where it is asked for

        for path in draw_runs(folder, runs, data_dir):
            say(f"drawn: {path}")


def print_results(results: Sequence[RunResult]) -> None:
    """Print the table of some results, and what its columns mean."""
    output.print(results_table(results))
    output.print(legend(results), style="dim", highlight=False)
