"""`gapsl status`: how a run stands that is trained here or elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapsl.analysis.comparison_folder import runs_in
from gapsl.cli.running import say
from gapsl.run.folder import RunFolder
from gapsl.run.status import status as status_of

EPILOG = "Example: gapsl status runs/cameras, or of a server elsewhere: gapsl status train.example.org:9100."


def status(
    run: Annotated[
        str,
        typer.Argument(
            help="A folder of a run, a comparison or a fleet, or HOST:PORT of gapsl serve --metrics."
        ),
    ],
) -> None:
    """Say how far a run is, how long it will take, and which devices are connected."""
    inside = [] if RunFolder(Path(run)).config_file.exists() else runs_in(Path(run), complete=False)
    for one in [str(folder.path) for folder in inside] or [run]:
        for line in status_of(one).lines():
            say(line)
