"""From a configuration to a run whose devices are somewhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import torch

from gapsl.assembly import EVALUATION_BATCH, LAYOUTS
from gapsl.fleets.remote import Agreed, RemoteFleet
from gapsl.net import wire_pb2 as wire
from gapsl.net.roster import PROTOCOL, Roster
from gapsl.net.service import Identify, Service, serve
from gapsl.net.session import Inbox
from gapsl.simulation import Parts, prepare
from gapsl.training.checkpoint import Checkpoints
from gapsl.training.config import Config
from gapsl.training.folder import RunFolder
from gapsl.training.loop import Training


@dataclass(frozen=True)
class Listening:
    """Where and to whom a server listens."""

    address: str
    names: Sequence[str]
    credentials: grpc.ServerCredentials | None = None
    identify: Identify = lambda context: None
    patience: float = 600.0
    started: Callable[[int], None] = lambda port: None  # told the port


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
        self.fleet = RemoteFleet(roster, inbox, agreed, patience=listening.patience, tell=self._tell)
        self.fleet.total_rounds = parts.total_rounds
        resolved = json.dumps({**config.model_dump(mode="json"), **config.sections})

        def welcome(device: int) -> wire.Welcome:
            return wire.Welcome(
                protocol=PROTOCOL,
                run=str(config.seed),
                device=device,
                devices=len(listening.names),
                config=resolved,
                classes=parts.source.classes,
                inputs=parts.source.input_shape,
                activations=agreed.activations,
                gradients=agreed.gradients,
                compression=agreed.compression,
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


def run(server: Server, out: Path | None) -> dict[str, object] | None:
    """Train to the end, going back where devices have to."""
    training = server.prepare()
    assert server.fleet is not None
    if out is None:
        server.fleet.begin(0)
        return training.run()
    folder = RunFolder.create(out, training.config, {})
    training.keep_in(folder)
    found = Checkpoints(folder.checkpoints, run=training.identity, keep=1).latest()
    if found is None:
        server.fleet.begin(0)
    training.resume(found)
    return training.run()
