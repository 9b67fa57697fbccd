"""`gapsl join`: one edge device, or several in one process."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from gapsl.cli import networking, running
from gapsl.cli.networking import log, start_log
from gapsl.common.errors import InputError
from gapsl.common.interrupt import Interrupt
from gapsl.network.device import join as network
from gapsl.network.protocol.settings import check_names

EPILOG = (
    "Example: gapsl join --server train.example.org:7443 --name camera-1 --certs camera-1. It keeps its "
    "client-side model in --state; started again with it, it continues where it was."
)


def hosted(names: list[str], devices: int | None) -> list[str]:
    """Return the devices of this process: those named, or so many of one name."""
    if devices is not None and len(names) > 1:
        raise InputError("--devices makes its own names; give one --name for all of them, or none")
    if devices is not None:
        names = [f"{names[0] if names else 'device'}-{number}" for number in range(devices)]
    if not names:
        raise InputError("a device needs its name; give --name")
    return list(check_names(tuple(names)))


def join(
    server: Annotated[str, typer.Option(help="The server's HOST:PORT.")],
    name: Annotated[
        list[str] | None,
        typer.Option(help="This device's name; repeated: several devices in one process."),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="So many devices in one process: NAME-0, NAME-1, ..."),
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Where the device keeps its client-side model between starts.")
    ] = Path("gapsl-state"),
    data: Annotated[
        str | None,
        typer.Option(help="Its own data, where the run asks for them: folder:PATH or a dataset's name."),
    ] = None,
    data_dir: running.DataDir = None,
    parameter_server: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the only parameter server that may see the client-side model; default: any."
        ),
    ] = None,
    certs: networking.Certs = None,
    insecure: networking.Insecure = False,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds without a connection before it gives up.")
    ] = 3600,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="It has lost its state: begin from the start, in a run that goes on."),
    ] = False,
    plugin: running.Plugins = None,
    log_format: networking.LogFormat = "text",
) -> None:
    """Take part in a run as a device, through broken links and restarts, until it is over."""
    start_log(log_format)
    names = hosted(name or [], devices)
    with Interrupt() as interrupt:
        over = network.join(
            server,
            names,
            state=state,
            data=data,
            data_dir=data_dir,
            parameter_server=parameter_server,
            certs=certs,
            insecure=insecure,
            patience=patience,
            fresh=fresh,
            stop=lambda: interrupt.asked,
        )
    if not over:
        # What it has in memory is of no use to anybody: it goes on from what it stored, as if it were killed.
        log.info("asked to stop; started again with the same --state, it goes on")
        logging.shutdown()
        # Threads inside torch would abort the process if the interpreter were taken down around them.
        os._exit(interrupt.exit_code)
