"""`gapsl status`: how a run stands that is trained here or elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from gapsl.cli.running import say
from gapsl.run.status import status as status_of

EPILOG = "Example: gapsl status runs/cameras, or of a server elsewhere: gapsl status train.example.org:9100."


def status(
    run: Annotated[
        str, typer.Argument(help="A run's folder, a fleet's, or HOST:PORT of gapsl serve --metrics.")
    ],
) -> None:
    """Say how far a run is, how long it will take, and which devices are connected."""
    for line in status_of(run).lines():
        say(line)
