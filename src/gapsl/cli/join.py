"""`gapsl join`: one edge device, or several in one process."""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import grpc
import torch
import typer

from gapsl.cli import networking, running
from gapsl.cli.networking import log, start_log
from gapsl.common.errors import GapslError, InputError
from gapsl.common.interrupt import Interrupt
from gapsl.network.device.agent import Agent, Patience
from gapsl.network.device.device_data import DeviceData, load_device_data
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.settings import check_names
from gapsl.network.tls.credentials import device_credentials
from gapsl.network.tls.security import check_address, choose_security

EPILOG = (
    "Example: gapsl join --server train.example.org:7443 --name camera-1 --certs camera-1. It keeps its half "
    "in --state; started again with it, it goes on where it was."
)


def device_data(welcome: wire.Welcome, data: str | None, data_dir: str | None) -> DeviceData:
    """Return what a device works with, and use as many threads as the run's settings say."""
    place = load_device_data(welcome, data, data_dir, log.info)
    torch.set_num_threads(place.config.threads)
    return place


def check_there(data: str) -> None:
    """Refuse a folder of data that is not there."""
    kind, _, rest = data.partition(":")
    path = Path(rest.partition("?")[0])
    if kind == "folder" and not path.is_dir():
        raise InputError(f"--data {data}: there is no folder {path}")


def hosted(names: list[str], devices: int | None) -> list[str]:
    """Return the devices of this process: those named, or so many of one name."""
    if devices is not None and len(names) > 1:
        raise InputError("--devices makes its own names; give one --name for all of them, or none")
    if devices is not None:
        names = [f"{names[0] if names else 'device'}-{number}" for number in range(devices)]
    if not names:
        raise InputError("a device needs its name; give --name")
    return list(check_names(tuple(names)))


def credentials_at(
    address: str, name: str, certs: Path | None, insecure: bool, pinned: str | None
) -> grpc.ChannelCredentials | None:
    """Return what a device shows the parameter server that the server names, if it may go there at all."""
    if pinned is not None and address != pinned:
        raise InputError(
            f"the server names {address} as the parameter server, not {pinned}: no half goes there; "
            "if it is right, change --parameter-server"
        )
    try:
        folder = choose_security(address, certs, insecure)
    except InputError as error:
        raise InputError(f"the parameter server that the server names: {error}") from None
    return None if folder is None else device_credentials(folder, name)


def join(
    server: Annotated[str, typer.Option(help="The server's HOST:PORT.")],
    name: Annotated[
        list[str] | None,
        typer.Option(help="This device's name; repeated: several devices in one process."),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="So many devices in one process: NAME-0, NAME-1, ..."),
    ] = None,
    state: Annotated[Path, typer.Option(help="Where the device keeps its half between starts.")] = Path(
        "gapsl-state"
    ),
    data: Annotated[
        str | None,
        typer.Option(help="Its own data, where the run asks for them: folder:PATH or a dataset's name."),
    ] = None,
    data_dir: networking.DataDir = None,
    parameter_server: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of the only parameter server that may see the half; default: any."),
    ] = None,
    certs: networking.Certs = None,
    insecure: networking.Insecure = False,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds without a connection before it gives up.")
    ] = 3600,
    plugin: running.Plugins = None,
    log_format: networking.LogFormat = "text",
) -> None:
    """Take part in a run as a device, through broken links and restarts, until it is over."""
    start_log(log_format)
    names = hosted(name or [], devices)
    torch.set_num_threads(1)
    check_address(server)
    folder = choose_security(server, certs, insecure)
    if data is not None:
        check_there(data)  # now, and not when the server is there
    agents = [
        Agent(
            server,
            one,
            state=state,
            load_data=lambda welcome: device_data(welcome, data, data_dir),
            credentials=None if folder is None else device_credentials(folder, one),
            credentials_for=partial(
                credentials_at, name=one, certs=certs, insecure=insecure, pinned=parameter_server
            ),
            patience=Patience(whole=patience),
            tell=lambda text, one=one: log.info("%s: %s", one, text, extra={"fields": {"device": one}}),  # type: ignore[misc]
        )
        for one in names
    ]
    failures: list[Exception] = []

    def run(agent: Agent) -> None:
        try:
            log.info("%s: %s", agent.name, agent.run())
        except Exception as error:  # the thread ends here, and the process must not end as if all were well
            log.error("%s: %s", agent.name, error, exc_info=not isinstance(error, GapslError))
            failures.append(error)

    threads = [threading.Thread(target=run, args=(agent,), daemon=True) for agent in agents]
    with Interrupt() as interrupt:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not interrupt.asked:
            time.sleep(0.1)
    if interrupt.asked:
        # What it has in memory is of no use to anybody: it goes on from what it stored, as if it were killed.
        log.info("asked to stop; started again with the same --state, it goes on")
        logging.shutdown()
        # Threads inside torch would abort the process if the interpreter were taken down around them.
        os._exit(interrupt.exit_code)
    if failures:
        raise failures[0]
