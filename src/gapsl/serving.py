"""From a configuration to a run whose devices are somewhere else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import torch

from gapsl.assembly import EVALUATION_BATCH, LAYOUTS
from gapsl.files import write_text
from gapsl.fleets.remote import RemoteFleet
from gapsl.net import wire_pb2 as wire
from gapsl.net.agreed import Agreed
from gapsl.net.closing import Closing
from gapsl.net.memory import Memory
from gapsl.net.roster import PROTOCOL, Roster
from gapsl.net.service import Identify, Service, serve
from gapsl.net.session import Inbox
from gapsl.simulation import Parts, prepare
from gapsl.training.config import Config
from gapsl.training.folder import RunFolder
from gapsl.training.loop import Training
from gapsl.training.observers import Observer


@dataclass(frozen=True)
class Listening:
    """Where and to whom a server listens."""

    address: str
    names: Sequence[str]
    credentials: grpc.ServerCredentials | None = None
    identify: Identify = lambda context: None
    patience: float = 600.0  # seconds without any news before the server gives up
    started: Callable[[int], None] = lambda port: None  # told the port
    stop: Callable[[], bool] = lambda: False
    closing: Closing = field(default_factory=Closing)
    parameter_server: str = ""  # its address, for the devices
    run: str = ""
    memory: Path | None = None  # where to keep what a restart has to know


class Server:
    """A run in progress, and the service its devices speak to."""

    def __init__(self, config: Config, listening: Listening, tell: Callable[[str], None]) -> None:
        self._config, self._listening, self._tell = config, listening, tell
        self.fleet: RemoteFleet | None = None
        self._grpc: grpc.Server | None = None

    def prepare(self) -> Training:
        """Build the run, and wait until every device is there."""
        return prepare(self._config, fleet_of=self._gather)

    def stop(self, reason: str, *, finished: bool) -> None:
        """Say goodbye to everybody, and stop listening."""
        if self.fleet is not None:
            self.fleet.goodbye(reason, finished=finished)
        if self._grpc is not None:
            self._grpc.stop(grace=2.0).wait()

    def _gather(self, parts: Parts) -> RemoteFleet:
        config, listening = self._config, self._listening
        inbox: Inbox = Inbox()
        roster = Roster(listening.names, inbox)
        agreed = agreed_on(parts)
        self.fleet = RemoteFleet(
            roster,
            inbox,
            agreed,
            Memory(listening.memory, roster.names),
            closing=listening.closing,
            total_rounds=parts.total_rounds,
            merges=bool(listening.parameter_server),
            patience=listening.patience,
            stop=listening.stop,
            tell=self._tell,
        )
        resolved = json.dumps({**config.model_dump(mode="json"), **config.sections})

        def welcome(device: int) -> wire.Welcome:
            return wire.Welcome(
                protocol=PROTOCOL,
                run=listening.run,
                device=device,
                devices=len(listening.names),
                config=resolved,
                classes=parts.source.classes,
                inputs=parts.source.input_shape,
                activations=agreed.activations,
                gradients=agreed.gradients,
                compression=agreed.compression,
                parameter_server=listening.parameter_server,
            )

        service = Service(roster, welcome, listening.identify)
        self._grpc, port = serve(service, listening.address, len(listening.names), listening.credentials)
        listening.started(port)
        self.fleet.gather()
        return self.fleet


def agreed_on(parts: Parts) -> Agreed:
    """Return what crosses the cut of a run."""
    config = parts.config
    with torch.no_grad():
        sample = torch.zeros(1, *parts.source.input_shape, dtype=next(parts.halves.device.parameters()).dtype)
        model = parts.halves.device.eval()
        cut = tuple(model(sample.to(parts.where)).shape[1:])
        model.train()
    return Agreed(
        wire.FLOAT64 if config.precision == "float64" else wire.FLOAT32,
        cut,
        config.batch_size,
        EVALUATION_BATCH,
        range(-1 if config.probes else 0, len(parts.source.classes)),
        layout=LAYOUTS[config.layout],
        where=parts.where,
    )


def train_remotely(
    config: Config,
    out: Path,
    listening: Listening,
    *,
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any] | None:
    """Train with devices somewhere else, from the newest checkpoint that all have; None if asked to stop."""
    folder = RunFolder(out) if RunFolder(out).config_file.exists() else RunFolder.create(out, config, {})
    with folder.locked():
        server = Server(
            config, replace(listening, run=run_name(folder), memory=folder.path / "fleet.json"), tell
        )
        reason, finished = "the server stops; it goes on when it is started again", False
        try:
            training = server.prepare()
            training.observers, training.stop = observers, stop
            training.keep_in(folder)
            assert training.checkpoints is not None
            training.checkpoints.keep_start = True
            if not training.checkpoints.found():
                training.checkpoint()
            training.go_back("the run begins")
            result = training.run()
            if result is not None:
                reason, finished = "the run is finished", True
            return result
        finally:
            server.stop(reason, finished=finished)


def run_name(folder: RunFolder) -> str:
    """Return what tells this run from all others, to devices that keep checkpoints of several."""
    path = folder.path / "run"
    if not path.exists():
        write_text(path, uuid.uuid4().hex)
    return path.read_text(encoding="utf-8").strip()
