"""`gapsl show`: what came out of a run or a comparison, or has so far."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gapsl.analysis.classes import classes_table, confusion_tables
from gapsl.analysis.comparison_folder import deeper, some_runs
from gapsl.analysis.formats import Table
from gapsl.analysis.runs import RunSummary
from gapsl.analysis.tables import as_json, participation, results_table
from gapsl.cli import running
from gapsl.cli.running import complain, errors, output, say
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
        Format, typer.Option(metavar="FORMAT", help="table, csv, latex, json or markdown.")
    ] = Format.TABLE,
    baseline: Annotated[
        str | None,
        typer.Option(help="Row to compare with, seed by seed: psl, or psl,rounds=40. Default: the first."),
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
    runs = read_runs(folder)
    if format is Format.JSON:
        say(json.dumps(plain(as_json(runs, baseline)), indent=1, allow_nan=False))
    elif classes or confusion:
        tables = [classes_table(runs)] if classes else []
        print_tables([*tables, *(confusion_tables(runs) if confusion else [])], format)
    else:
        print_tables([results_table(runs, baseline)], format)
        if format is Format.TABLE:
            explain(folder, runs)
    if plots:
        from gapsl.analysis.plots import draw_runs  # an extra: imported only where it is asked for

        tell = say if format is Format.TABLE else note  # so that a table in a file is a table
        for line in draw_runs(folder, runs, plot_format.split(","), data_dir):
            tell(line)


def read_runs(folder: Path) -> list[RunSummary]:
    """Read the runs in a folder; one of several that cannot be read keeps nobody from the others."""
    found, runs = some_runs(folder), []
    for run in found:
        try:
            runs.append(RunSummary.read(run))
        except InputError as error:
            if len(found) == 1:
                raise
            complain(f"not shown: {run.path.name}: {error}")
    if not runs:
        raise InputError(f"no run in {folder} can be read")
    for path in deeper(folder):
        complain(f"not shown: the runs in {path}; see them with: gapsl show {shlex.quote(str(path))}")
    return runs


def print_tables(tables: list[Table], format: Format = Format.TABLE) -> None:
    """Print tables; in a file nothing is wrapped."""
    printed = {
        Format.TABLE: lambda table: table.text(output.width if output.is_terminal else None),
        Format.CSV: Table.csv,
        Format.LATEX: Table.latex,
        Format.MARKDOWN: Table.markdown,
    }
    say("\n\n".join(printed[format](table) for table in tables))


def explain(folder: Path, runs: list[RunSummary]) -> None:
    """Say how often a single run's devices were chosen, and how what is not finished is finished."""
    if len(runs) == 1 and runs[0].folder is not None:
        for line in participation(list(runs[0].folder.records())):
            say(line)
    left = {run.folder: run.state for run in runs if run.folder is not None and run.final is None}
    if len(left) > 1:
        say(f"{len(left)} runs are not finished; finish them with: gapsl resume {shlex.quote(str(folder))}")
        return
    for run, state in left.items():
        say(f"{run.path.name} is at {state}; {how_to_finish(run)}")


def how_to_finish(run: RunFolder) -> str:
    """Return the command that brings a run to its end."""
    fleet = run.path.parent
    if run.network_file.exists() and (fleet / PROCESSES).exists():
        return f"finish it with: gapsl fleet up --out {shlex.quote(str(fleet))}"
    more = ", with its --listen and --certs" if run.network_file.exists() else ""
    return f"finish it with: {run.go_on}{more}"


def note(text: str) -> None:
    """Print a line beside a table that goes to a file."""
    errors.print(text, markup=False, highlight=False, soft_wrap=True)


def print_results(results: list[RunResult]) -> None:
    """Print the table of some results, and what its columns mean."""
    print_tables([results_table(results)])
