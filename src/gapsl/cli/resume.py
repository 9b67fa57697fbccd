"""`gapsl resume`: go on with a run, or with all runs of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import gapsl
from gapsl.analysis.comparison import runs_in
from gapsl.analysis.progress import Board, RunProgress
from gapsl.cli import running
from gapsl.cli.compare import finish, unfinished
from gapsl.cli.running import output
from gapsl.cli.train import report
from gapsl.common.interrupt import Interrupt
from gapsl.run.folder import RunFolder


def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a comparison's.")],
    data_dir: running.DataDir = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time, in a comparison.")] = None,
    quiet: running.Quiet = False,
) -> None:
    """Go on from the last checkpoint; the end is the same, bit for bit, as if nothing had happened."""
    if not RunFolder(folder).config_file.exists() and runs_in(folder):
        finish(folder, unfinished(folder), workers=workers, quiet=quiet, data_dir=data_dir)
        return
    opened = RunFolder.open(folder)
    config, _ = opened.config()
    if opened.result() is not None:
        output.print(f"{folder} is finished already", highlight=False, markup=False, soft_wrap=True)
    incidental: dict[str, Any] = {"data_dir": data_dir} if data_dir is not None else {}
    with Interrupt(running.asked_to_stop) as interrupt, Board(output, quiet=quiet) as board:
        result = gapsl.resume(
            folder,
            observers=[RunProgress(board, config.method)],
            stop=lambda: interrupt.asked,
            progress=board.download,
            **incidental,
        )
    report(result, folder, interrupt)
