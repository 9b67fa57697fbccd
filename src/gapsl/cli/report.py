"""`gapsl report`: runs as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapsl.cli import running
from gapsl.cli.running import complain, say
from gapsl.dashboard.report import write_report

EPILOG = "Example: gapsl report runs/b --out report.html. The file needs no network and no gapsl."


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or comparisons.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    data_dir: running.DataDir = None,
) -> None:
    """Write runs into one HTML file: the live page's charts, settings, and how to do it again."""
    for damage in write_report(runs, out, data_dir=data_dir):
        complain(f"warning: {damage}")
    say(f"report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
