"""`gapsl serve`: the server's half of a run over the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gapsl.cli import networking, running
from gapsl.cli.networking import given, log, server_security, split_names, start_log
from gapsl.cli.show import print_results
from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.common.interrupt import Interrupt
from gapsl.network.protocol.settings import Network, make_network
from gapsl.network.server.event_queue import listing
from gapsl.run.api import compose
from gapsl.run.build import INCIDENTAL
from gapsl.run.config import Config, merge, parse_assignment, read_yaml
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer
from gapsl.run.records import RoundRecord
from gapsl.run.serve import Listening, stored_network, train_remotely

EPILOG = (
    "Example: gapsl serve --config run.yaml --out runs/fleet, and on each device: gapsl join --server "
    "HOST:7443 --name device-0. Stop or kill it: the same command goes on. See docs/network.md."
)


MUTUAL_TLS = "mutual TLS"


class RoundLog(Observer):
    """Says how the run goes on, in log lines."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def started(self, run: Any) -> None:
        """Training begins, or goes on."""
        log.info("%s: round %d of %d", run.method, run.first_round, run.total_rounds)

    def round(self, record: RoundRecord) -> None:
        """A round is done."""
        fields: dict[str, Any] = {"round": record.round}
        words = [f"round {record.round}"]
        if record.loss is not None:
            fields["loss"] = record.loss
            words.append(f"loss {record.loss:.3f}")
        if record.selection is not None:
            fields["kept"] = list(record.selection.kept)
            words.append(f"kept {len(record.selection.kept)}")
        if record.events.absent:
            fields["absent"] = sorted(record.events.absent)
            words.append(f"without {listing([self._names[device] for device in fields['absent']])}")
        if record.evaluation is not None:
            fields["accuracy"] = record.evaluation.device_mean
            words.append(f"accuracy {100 * fields['accuracy']:.1f} %")
        log.info(" ".join(words), extra={"fields": fields})

    def warned(self, message: str) -> None:
        """Something a person should know of."""
        log.warning(message)


def serve(
    config: running.ConfigFile = None,
    out: Annotated[Path, typer.Option(help="The run's folder; a run in it goes on.")] = Path("runs/fleet"),
    listen: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0:7443 for all.")] = "localhost:7443",
    names: networking.Names = None,
    closing: Annotated[
        str | None,
        typer.Option(help="When a round closes: all (the default), fraction:SHARE or deadline:SECONDS."),
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
    data_dir: running.DataDir = None,
    preset: running.Preset = None,
    set_: running.Assignments = None,
    plugin: running.Plugins = None,
    log_format: networking.LogFormat = "text",
) -> None:
    """Serve a run: wait for its devices, train with them, and go on whatever happens."""
    start_log(log_format)
    asked = given(
        names=split_names(names),
        closing=closing,
        activations=activations,
        gradients=gradients,
        compression=compression,
        parameter_server=parameter_server,
        patience=patience,
    )
    words = merge(given(data_dir=data_dir), *(parse_assignment(text) for text in set_ or []))
    chosen, network = settings_of(config, preset, words, asked, out)
    credentials, identify = server_security(listen, certs, insecure, "server")
    if credentials is None and not insecure and not RunFolder(out).result_file.exists():
        refuse_plainer(out)
    host = listen.rpartition(":")[0]
    names_of_all = network.device_names(chosen.devices)

    def started(port: int) -> None:
        security = MUTUAL_TLS if credentials is not None else "plain text"
        log.info("serving %s on %s:%d (%s), run in %s", chosen.method, host, port, security, out)
        if was_secure(out):  # once in plain text is not for good
            security = MUTUAL_TLS
        write_text(out / "security", security)
        write_text(out / "address", f"{host}:{port}")
        log.info("waiting for %s", listing(names_of_all))

    with Interrupt(lambda: log.info("asked to stop: after this round")) as interrupt:
        listening = Listening(
            listen,
            credentials,
            identify,
            started,
            lambda: interrupt.asked,
            log.info,
            [RoundLog(names_of_all)],
            metrics,
        )
        result = train_remotely(chosen, network, out, listening)
    if result is None:
        log.info("stopped; the same command goes on")
        raise typer.Exit(interrupt.exit_code)
    if log_format == "text":  # whoever reads JSON reads the result from its file
        print_results([result])
    log.info("the run is finished: %s", out / "result.json")


def was_secure(out: Path) -> bool:
    """Say whether a run was served over TLS before."""
    before = out / "security"
    return before.is_file() and before.read_text(encoding="utf-8", errors="replace") == MUTUAL_TLS


def refuse_plainer(out: Path) -> None:
    """Refuse to go on in plain text, unasked, with a run that was served over TLS."""
    if was_secure(out):
        raise InputError(
            f"{out} was served with {MUTUAL_TLS}, and its devices expect that: give --listen and --certs as "
            "before, or ask for plain text with --insecure"
        )


def settings_of(
    file: Path | None, preset: str | None, words: dict[str, Any], asked: Any, out: Path
) -> tuple[Config, Network]:
    """Return the settings of a run: what is asked for, or what it was started with."""
    asked_for = merge(read_yaml(file) if file is not None else {}, words)
    section = asked_for.pop("network", None) or {}
    if not isinstance(section, Mapping):
        where = f"{file}: " if file is not None else ""
        raise InputError(f"{where}`network` is a section with settings of its own, like `closing: all`")
    network = merge(section, asked)
    named = make_network(network).names
    if named:  # those are the devices of the run, unless it says otherwise
        asked_for = merge({"devices": len(named)}, asked_for)
    if not RunFolder(out).config_file.exists():
        return compose(None, preset_name=preset, words=asked_for), make_network(network)
    stored, _ = RunFolder.open(out).config()
    before = stored.resolved()
    base = None if file is not None or preset is not None else stored
    wanted = compose(base, preset_name=preset, words=asked_for).resolved()
    for name, value in wanted.items():
        if name not in INCIDENTAL and before.get(name) != value:
            raise InputError(
                f"{out} was started with {name} = {before.get(name)}, not {value}; to go on leave out "
                "--config, --preset and --set, or give those of its start; another run needs another --out"
            )
    incidental = {name: value for name, value in words.items() if name in INCIDENTAL}
    if not RunFolder(out).network_file.exists():
        return compose(stored, words=incidental), make_network(network)
    known = stored_network(out)
    now = make_network(merge(known.model_dump(mode="json"), network))
    for name in ("names", "data", "activations", "gradients", "compression"):
        if getattr(now, name) != getattr(known, name):
            raise InputError(
                f"{out} was started with network.{name} = {getattr(known, name)}, not {getattr(now, name)}; "
                "choose another --out for another run"
            )
    return compose(stored, words=incidental), now
