"""`gapsl serve`: the server's side of a run over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapsl.cli import networking, running
from gapsl.cli.networking import given, log, split_names, start_log
from gapsl.cli.show import print_results
from gapsl.common.interrupt import Interrupt
from gapsl.dashboard.launch import METRICS, can_measure, live_page
from gapsl.run.config import merge, parse_assignment
from gapsl.run.serve import serve_run
from gapsl.run.served_run import served_settings

EPILOG = (
    "Example: gapsl serve --config run.yaml --out runs/fleet, and on each device: gapsl join --server "
    "HOST:7443 --name device-0. Stop or kill it; run the same command to continue. See docs/network.md."
)


def serve(
    config: running.ConfigFile = None,
    out: Annotated[Path, typer.Option(help="The run's folder; a run in it goes on.")] = Path("runs/fleet"),
    listen: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0:7443 for all.")] = "localhost:7443",
    names: networking.Names = None,
    devices: running.Devices = None,
    closing: Annotated[
        str | None,
        typer.Option(
            help="When a round closes: all, quorum:SHARE, fraction:SHARE or deadline:SECONDS; "
            "default: quorum:0.8 with devices' own data, else all."
        ),
    ] = None,
    activations: Annotated[
        str | None, typer.Option(help="How activations are sent: none (the default), fp16, bf16 or int8.")
    ] = None,
    gradients: Annotated[str | None, typer.Option(help="How gradients are sent; the same choices.")] = None,
    compression: Annotated[str | None, typer.Option(help="none (the default) or zstd.")] = None,
    parameter_server: Annotated[
        str | None, typer.Option(help="HOST:PORT of the gapsl parameter-server, for SFL and vanilla SL.")
    ] = None,
    patience: Annotated[
        float | None, typer.Option(help="Seconds without news before it gives up; default: 600.")
    ] = None,
    certs: networking.Certs = None,
    insecure: networking.Insecure = False,
    metrics: Annotated[str, typer.Option(help="HOST:PORT for Prometheus; default: none.")] = "",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to train; more than a run in --out has extend it.")
    ] = None,
    data_dir: running.DataDir = None,
    preset: running.Preset = None,
    set_: running.Assignments = None,
    plugin: running.Plugins = None,
    dashboard: running.LivePage = False,
    log_format: networking.LogFormat = "text",
) -> None:
    """Serve a run: wait for its devices, train with them, and go on whatever happens."""
    start_log(log_format)
    network = given(
        names=split_names(names),
        closing=closing,
        activations=activations,
        gradients=gradients,
        compression=compression,
        parameter_server=parameter_server,
        patience=patience,
    )
    words = merge(
        given(data_dir=data_dir, rounds=rounds, devices=devices),
        *(parse_assignment(text) for text in set_ or []),
        {"network": network} if network else {},
    )
    chosen, agreed = served_settings(config, preset, words, out)
    metrics = metrics or (METRICS if dashboard and can_measure() else "")  # they say who is connected
    with (
        live_page(out, dashboard, log.info),
        Interrupt(lambda: log.info("asked to stop: after this round")) as interrupt,
    ):
        result = serve_run(
            chosen, agreed, out, listen, certs, insecure, metrics, [], stop=lambda: interrupt.asked
        )
    if result is None:
        log.info("stopped; run the same command to continue")
        raise typer.Exit(interrupt.exit_code)
    if log_format == "text":  # whoever reads JSON reads the result from its file
        print_results([result])
    log.info("the run is finished: %s", out / "result.json")
