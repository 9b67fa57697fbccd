"""`gapsl serve-model`: the server-side model of a trained run, for devices that keep theirs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import torch
import typer

from gapsl.cli import networking, running
from gapsl.cli.networking import log, split_names, start_log
from gapsl.common.interrupt import Interrupt
from gapsl.inference.places import is_run, parts_at
from gapsl.inference.service import WAITING, InferenceService, serve_inference
from gapsl.network.protocol.settings import check_names
from gapsl.network.serving import server_security
from gapsl.run.folder import RunFolder
from gapsl.run.served_run import stored_network

EPILOG = (
    "Example: gapsl serve-model runs/fleet --listen 0.0.0.0:7445, and on a device: gapsl predict gapsl-state "
    "photos/ --server HOST:7445 --name camera-1. Certificates are those of training. See docs/export.md."
)


def serve_model(
    place: Annotated[Path, typer.Argument(help="A run's folder, or an export with the server's part.")],
    listen: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0:7445 for all.")] = "localhost:7445",
    names: Annotated[
        str | None,
        typer.Option(help="Who may ask, by commas; default: the run's devices, else all with a certificate."),
    ] = None,
    waiting: Annotated[
        int, typer.Option(min=1, max=1000, help="Questions taken in at once; others are told to come again.")
    ] = WAITING,
    certs: networking.Certs = None,
    insecure: networking.Insecure = False,
    plugin: running.Plugins = None,
    log_format: networking.LogFormat = "text",
) -> None:
    """Answer devices that keep the client-side model: they send activations, and get the logits."""
    start_log(log_format)
    torch.set_num_threads(1)
    allowed = split_names(names) or devices_of(place)
    check_names(allowed)
    credentials, identify = server_security(listen, certs, insecure, "server")
    parts = parts_at(place)
    service = InferenceService(parts, allowed, waiting=waiting, identify=identify, tell=log.info)
    over = threading.Event()
    with Interrupt(over.set) as interrupt:
        server = serve_inference(service, listen, credentials, streams=2 * waiting)
        try:
            security = "mutual TLS" if credentials is not None else "plain text"
            address = f"{listen.rpartition(':')[0]}:{server.port}"
            log.info(
                "serving the model of %s after round %d on %s (%s)", place, parts.round, address, security
            )
            over.wait()
            log.info("asked to stop")
        finally:
            server.leaving()
            server.stop()
    raise typer.Exit(interrupt.exit_code)


def devices_of(place: Path) -> tuple[str, ...]:
    """Return the devices of a run over the network; nobody's names where there are none."""
    if not is_run(place) or not RunFolder(place).network_file.exists():
        return ()
    config, _ = RunFolder(place).config()
    return stored_network(place).device_names(config.devices)
