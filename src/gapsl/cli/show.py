"""`gapsl show`: what came out of a run or a comparison, or has so far."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gapsl.analysis.classes import classes_table, confusion_tables
from gapsl.analysis.comparison_folder import runs_in
from gapsl.analysis.formats import Table
from gapsl.analysis.runs import RunSummary
from gapsl.analysis.tables import as_json, participation, results_table
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.common.errors import InputError
from gapsl.common.files import plain
from gapsl.network.processes import PROCESSES
from gapsl.run.folder import RunFolder
from gapsl.run.records import RunResult


class Format(StrEnum):
    """How a table is printed."""

    TABLE = "table"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"
    MARKDOWN = "markdown"


def show(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or one with several in it.")],
    format: Annotated[
        Format, typer.Option(help="How to print; csv and json have all digits.")
    ] = Format.TABLE,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Row to compare with, seed by seed: psl, or psl,server_optimizer.lr=0.1. Default: the first."
        ),
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="Print the accuracy by class.")] = False,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="Print which class is taken for which.")
    ] = False,
    plots: running.Plots = False,
    plot_format: running.PlotFormat = "png",
    data_dir: running.DataDir = None,
) -> None:
    """Show runs as a table, a row per setting, and with --plots as pictures in the folder."""
    found = runs_in(folder, complete=False)
    if not found:
        raise InputError(f"{folder} has no run in it; {how_to_start(folder)}")
    runs = [RunSummary.read(run) for run in found]
    if format is Format.JSON:
        say(json.dumps(plain(as_json(runs, baseline)), indent=1, allow_nan=False))
    elif classes or confusion:
        tables = [classes_table(runs)] if classes else []
        print_tables([*tables, *(confusion_tables(runs) if confusion else [])], format)
    else:
        print_tables([results_table(runs, baseline)], format)
        if format is Format.TABLE:
            explain(found, runs)
    if plots:
        draw(folder, runs, plot_format, data_dir)


def print_tables(tables: list[Table], format: Format = Format.TABLE) -> None:
    """Print tables; in a file nothing is wrapped."""
    printed = {
        Format.TABLE: lambda table: table.text(output.width if output.is_terminal else None),
        Format.CSV: Table.csv,
        Format.LATEX: Table.latex,
        Format.MARKDOWN: Table.markdown,
    }
    say("\n\n".join(printed[format](table) for table in tables))


def explain(found: list[RunFolder], runs: list[RunSummary]) -> None:
    """Say how often a single run's devices were chosen, and how unfinished ones are finished."""
    if len(found) == 1:
        for line in participation(list(found[0].records())):
            say(line)
    for folder, run in zip(found, runs, strict=True):
        if run.final is None:
            say(f"{folder.path.name} is at {run.state}; {how_to_finish(folder)}")


def how_to_finish(run: RunFolder) -> str:
    """Return the command that brings a run to its end."""
    fleet = run.path.parent
    if run.network_file.exists() and (fleet / PROCESSES).exists():
        return f"finish it with: gapsl fleet up --out {shlex.quote(str(fleet))}"
    return (
        f"finish it with: {run.go_on}{', with its --listen and --certs' if run.network_file.exists() else ''}"
    )


def how_to_start(folder: Path) -> str:
    """Return the command that makes a run in a folder that has none."""
    if (folder / PROCESSES).exists():
        return f"start it with: gapsl fleet up --out {shlex.quote(str(folder))}"
    return f"start one with: gapsl train --out {shlex.quote(str(folder))}"


def show_runs(folder: Path, *, plots: bool, plot_format: str = "png", data_dir: str | None = None) -> None:
    """Print the table of a folder's runs, and draw them if asked."""
    found = runs_in(folder, complete=False)
    runs = [RunSummary.read(run) for run in found]
    print_tables([results_table(runs)])
    explain(found, runs)
    if plots:
        draw(folder, runs, plot_format, data_dir)


def draw(folder: Path, runs: list[RunSummary], plot_format: str, data_dir: str | None) -> None:
    """Draw runs into their folder, and say what could not be drawn."""
    from gapsl.analysis.plots import draw_runs  # an extra: imported only where it is asked for

    for line in draw_runs(folder, runs, plot_format.split(","), data_dir):
        say(line)


def print_results(results: list[RunResult]) -> None:
    """Print the table of some results, and what its columns mean."""
    print_tables([results_table(results)])
