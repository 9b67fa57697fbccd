"""`gapsl parameter-server`: the third party that averages client-side models."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path
from typing import Annotated

import typer

from gapsl.cli import networking
from gapsl.cli.networking import log, split_names, start_log
from gapsl.common.errors import InputError
from gapsl.common.files import room_needed, write_text
from gapsl.common.interrupt import Interrupt
from gapsl.network.parameter_server.service import ParameterService, serve_parameters
from gapsl.network.parameter_server.store import Transfers
from gapsl.network.protocol.settings import check_names
from gapsl.network.serving import server_security

EPILOG = (
    "Example: gapsl parameter-server --names camera-1,camera-2 --listen 0.0.0.0:7444, and gapsl serve "
    "--parameter-server HOST:7444. SFL and vanilla SL need one, the other methods do not."
)


def parameter_server(
    names: Annotated[str | None, typer.Option(help="The devices, by commas, in the server's order.")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="So many: device-0, device-1, ...")] = None,
    listen: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0:7444 for all.")] = "localhost:7444",
    state: Annotated[
        Path, typer.Option(help="Where client-side models are kept until all have the mean.")
    ] = Path("gapsl-parameters"),
    largest: Annotated[int, typer.Option(min=1, help="MiB that a client-side model may have.")] = 1024,
    certs: networking.Certs = None,
    insecure: networking.Insecure = False,
    log_format: networking.LogFormat = "text",
) -> None:
    """Average client-side models, or pass them on; the main server never sees them."""
    start_log(log_format)
    listed = split_names(names) or tuple(f"device-{number}" for number in range(devices or 0))
    if not listed or (names and devices):
        raise InputError("say who may take part: --names camera-1,camera-2 or --devices 10")
    check_names(listed)
    credentials, identify = server_security(listen, certs, insecure, "parameter-server")
    again = f"gapsl parameter-server --state {shlex.quote(str(state))}"
    try:  # before anybody can come
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {state}: {error.strerror}; choose another --state, or make room"
        ) from None
    service = ParameterService(listed, Transfers(state, log.info), largest << 20, identify, log.info)
    over = threading.Event()
    with Interrupt(over.set) as interrupt:
        server = serve_parameters(service, listen, credentials)
        try:
            address = f"{listen.rpartition(':')[0]}:{server.port}"
            log.info("parameter server on %s for %d devices", address, len(listed))
            with room_needed(state, again):
                write_text(state / "address", address)
            over.wait()
            log.info("asked to stop; started again with the same --state, it goes on")
        finally:
            server.leaving()
            server.stop()
    raise typer.Exit(interrupt.exit_code)
