"""`gapsl replay`: a run over the network once more in this process, with who took part when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gapsl.analysis.progress import Display, RunProgress
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.common.errors import GapslError
from gapsl.common.interrupt import Interrupt
from gapsl.run.replay import replay as replayed


class Different(GapslError):
    """A replay has not given what the run gave."""


def replay(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data_dir: running.DataDir = None,
    plugin: running.Plugins = None,
    quiet: running.Quiet = False,
) -> None:
    """Repeat a run in this process with the same devices missing at the same times; weights must be equal."""
    incidental: dict[str, Any] = {"data_dir": data_dir} if data_dir is not None else {}
    with Interrupt(running.asked_to_stop) as interrupt, Display(output, quiet=quiet) as display:
        shown = [RunProgress(display, "replay")]
        again = replayed(folder, observers=shown, stop=lambda: interrupt.asked, **incidental)
    if again is None:
        raise typer.Exit(interrupt.exit_code)
    expected, found = (one.final.weights_sha256 for one in (again.expected, again.result))
    if not again.identical:
        raise Different(f"the weights differ: {expected[:16]}... in {folder}, {found[:16]}... here")
    disturbed = (
        f" ({again.absences} times a device was missing, {again.rollbacks} times one went back to a state "
        "of its own)"
    )
    said = disturbed if again.absences or again.rollbacks else ""
    say(f"the same weights, bit for bit: {found[:16]}...{said}")
