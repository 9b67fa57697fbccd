"""From a configuration to a run whose devices are somewhere else."""

from __future__ import annotations

import queue
import re
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import torch
import yaml
from torch import Tensor

from gapsl.analysis.metrics import Metrics
from gapsl.common.errors import InputError
from gapsl.common.files import room_needed, write_text
from gapsl.data import make_evaluation_transform
from gapsl.device.build import LAYOUTS, batched
from gapsl.fleets.base import Stopped
from gapsl.fleets.remote import EvaluationInputs, RemoteFleet
from gapsl.methods.registry import METHODS
from gapsl.models.half import model_bytes
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.settings import CODECS, COMPRESSIONS, Network, make_network
from gapsl.network.server.fleet_state import FleetState, last_checkpoint_of
from gapsl.network.server.roster import PROTOCOL, Roster
from gapsl.network.server.service import Identify, Service, Serving, serve
from gapsl.network.server.session import Heard, Inbox
from gapsl.network.tls.security import check_address
from gapsl.run.build import Parts, prepare
from gapsl.run.checkpoint import Checkpoints, round_of
from gapsl.run.config import Config, read_yaml
from gapsl.run.environment import threads
from gapsl.run.folder import RunFolder
from gapsl.run.loop import Training
from gapsl.run.observers import Observer
from gapsl.run.records import RunResult

RUN_NAME = re.compile("[0-9a-f]{32}")
FAREWELL_SECONDS = 20.0  # that a finished run waits for devices that do not know it yet, who try every 15


@dataclass(frozen=True)
class Listening:
    """Where a server listens, and whom it believes."""

    address: str
    credentials: grpc.ServerCredentials | None = None
    identify: Identify = lambda context: None
    started: Callable[[int], None] = lambda port: None  # told the port
    stop: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda text: None
    observers: Sequence[Observer] = field(default_factory=list)
    metrics: str = ""  # HOST:PORT for Prometheus; none: not served


def train_remotely(config: Config, network: Network, out: Path, listening: Listening) -> RunResult | None:
    """Train with devices somewhere else, from the newest checkpoint that all have; None if asked to stop."""
    check_served(config, network)
    folder = RunFolder(out)
    again = f"gapsl serve --out {shlex.quote(str(out))}"
    with room_needed(out, again), folder.locked(), threads(config.threads):
        refuse_incomplete(folder)
        new = opened(folder, config, network)
        server = Server(config, network, folder, listening)
        try:
            done = folder.result()
            result = server.prepare().run() if done is None else done
            if result is not None:
                server.farewell()
            return result
        except Stopped:  # while devices were waited for
            return None
        except InputError:
            if new and not server.listened:
                discard(folder)
            raise
        finally:
            server.stop("the server stops; it goes on when it is started again")


def discard(folder: RunFolder) -> None:
    """Remove what was written of a run that could not even wait for devices: it is in the next one's way."""
    for path in (folder.config_file, folder.environment_file, folder.network_file, folder.name_file):
        path.unlink(missing_ok=True)


def refuse_incomplete(folder: RunFolder) -> None:
    """Refuse a folder that has lost a file: without it the run would begin anew, or not know its past."""
    finished = folder.result_file.exists()
    recorded = [] if finished else [record.round for record in folder.records()]
    rounds = [round_of(path) for path in Checkpoints(folder.checkpoints, run="", keep=1).found()]
    if not finished and not any(rounds) and not recorded:
        return  # nothing is trained yet
    served = (folder.name_file, folder.fleet_file, folder.network_file)
    if not any(path.exists() for path in served):
        way = "see it with gapsl show" if finished else "go on with gapsl resume"
        raise InputError(
            f"{folder.path} has a run in it that was trained without a network: {way} {folder.quoted}, or "
            "choose another --out"
        )
    if finished:
        return  # it does not have to go on
    wanted = (*served, folder.records_file)
    missing = [path.name for path in wanted if not path.exists()]
    if not rounds or (
        not any(rounds) and last_checkpoint_of(folder.fleet_file)
    ):  # that of round 0 is always kept
        missing.append("checkpoints")
    if missing:
        raise InputError(
            f"{folder.path} has lost {' and '.join(missing)}, without which the run cannot go on: put it "
            "back from a copy of the folder, or start a new run with another --out"
        )
    folder.check_records(max(rounds))


def check_served(config: Config, network: Network) -> None:
    """Refuse what cannot be done over a network, before anybody is waited for."""
    strategy = METHODS[config.method]
    if strategy.pooled:
        raise InputError(f"{config.method} has all data in one place, so there is nothing to serve")
    if strategy.moves_halves and not network.parameter_server:
        raise InputError(
            f"{config.method} moves devices' halves, which the server must not see: start a gapsl "
            "parameter-server, and name it with --parameter-server HOST:PORT"
        )
    if network.parameter_server:
        check_address(network.parameter_server)
    penalty = getattr(config.parameters(), "penalty", None)
    if config.labels == "device" and penalty == "finite" and not network.round_policy().waits_for_all:
        raise InputError(
            "the finite penalty asks kept devices once more, and so needs them to the end of the round; set "
            "gapsl.penalty = none, or closing = all"
        )
    if strategy.in_turn and not network.round_policy().waits_for_all:
        raise InputError(
            f"{config.method} goes from device to device and needs each of them; set closing = all"
        )
    network.device_names(config.devices)


def opened(folder: RunFolder, config: Config, network: Network) -> bool:
    """Write down the settings of a run if they are not there; True: it is new."""
    new = not folder.config_file.exists()
    if new:
        RunFolder.create(folder.path, config, {})
    if not folder.network_file.exists():
        write_network(folder, network)
    return new


def write_network(folder: RunFolder, network: Network) -> None:
    """Write down how a run goes over the network."""
    write_text(folder.network_file, yaml.safe_dump(network.model_dump(mode="json"), sort_keys=False))


def stored_network(out: Path) -> Network:
    """Return how a run that was served before goes over the network; killed at its start, it may not know."""
    file = RunFolder(out).network_file
    if not file.exists():
        return make_network({})
    values = read_yaml(file)
    if not values:
        raise InputError(f"{file} is damaged: it is empty; put it back from a copy of the folder")
    return make_network(values)


class Server:
    """A run in progress, and the service its devices speak to."""

    def __init__(self, config: Config, network: Network, folder: RunFolder, listening: Listening) -> None:
        self._config, self._network, self._folder, self._listening = config, network, folder, listening
        self._roster = Roster(network.device_names(config.devices), Inbox())
        self._service: Service | None = None
        self._serving: Serving | None = None
        self._metrics: list[Observer] = []

    @property
    def listened(self) -> bool:
        """Whether devices may have heard of the run."""
        return self._serving is not None

    def prepare(self) -> Training:
        """Build the run, wait for its devices, and go back to where all of them can go on from."""
        listening, folder = self._listening, self._folder
        saved = folder.partition_file if folder.partition_file.exists() else None
        training = prepare(
            self._config,
            partition_file=saved,
            fleet_of=self._gather,
            own_data=self._network.data == "own",
        )
        training.observers, training.stop = [*listening.observers, *self._metrics], listening.stop
        if self._network.data == "own":
            training.custom = {"partition": "own data"}
        training.keep_in(folder)
        assert training.checkpoints is not None
        training.checkpoints.keep_start = True
        if not training.checkpoints.found():
            training.checkpoint()
        training.go_back("the run goes on")
        return training

    def _measured(self, fleet: RemoteFleet) -> list[Observer]:
        if not self._listening.metrics:
            return []
        metrics = Metrics(self._roster.names, self._roster.connected, lambda: fleet.departures)
        port = metrics.serve(self._listening.metrics)
        self._listening.tell(f"metrics on port {port}")
        return [metrics]

    def farewell(self) -> None:
        """Tell every device that the run is over, and wait a little for those who are away."""
        file = self._folder.path / "told"
        told = set(file.read_text(encoding="utf-8").split()) if file.exists() else set()
        names, reason = set(self._roster.names), "the run is finished"
        if names <= told:
            return
        if self._service is None:
            self._listen(Service(self._roster, lambda device: wire.Welcome(), self._listening.identify))
        assert self._service is not None
        self._service.finished = reason  # first, so that nobody comes between
        self._roster.goodbye(reason, finished=True)
        deadline = time.monotonic() + FAREWELL_SECONDS
        while not names <= told and (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                event = self._roster.inbox.get(timeout=left)
                if isinstance(event, Heard):
                    told.add(event.session.name)
        write_text(file, "\n".join(sorted(told)) + "\n")

    def stop(self, reason: str) -> None:
        """Say goodbye to whoever is there, and stop listening."""
        if self._serving is not None:
            self._serving.leaving()
            self._roster.goodbye(reason, finished=False)
            self._serving.stop()

    def _listen(self, service: Service) -> None:
        listening = self._listening
        self._service = service
        self._serving = serve(service, listening.address, len(self._roster.names), listening.credentials)
        listening.started(self._serving.port)

    def _gather(self, parts: Parts) -> RemoteFleet:
        """Listen, and wait until every device has said what it has."""
        listening, network, roster = self._listening, self._network, self._roster
        cut, features = shapes_at_cut(parts)
        welcome = self._welcome(parts, features)
        fleet = RemoteFleet(
            roster,
            TensorContract.of(welcome, self._config, cut),
            FleetState(self._folder.fleet_file, roster.names, known_labels(parts)),
            policy=network.round_policy(),
            total_rounds=parts.total_rounds,
            merges=bool(network.parameter_server),
            half_bytes=model_bytes(parts.halves.device),
            sizes=common_sizes(parts),
            sets=public_sets(parts) if network.data == "own" else None,
            where=parts.where,
            layout=LAYOUTS[self._config.layout],
            patience=network.patience,
            stop=listening.stop,
            tell=listening.tell,
        )
        self._metrics = self._measured(fleet)  # before devices are waited for: who is missing is in them
        self._listen(Service(roster, partial(addressed, welcome), listening.identify))
        write_network(self._folder, network)  # of which some may have changed, and now stays
        fleet.gather()
        return fleet

    def _welcome(self, parts: Parts, features: tuple[int, ...]) -> wire.Welcome:
        """Return what every device is told of the run."""
        network, source = self._network, parts.source
        return wire.Welcome(
            protocol=PROTOCOL,
            run=run_name(self._folder),
            devices=self._config.devices,
            config=self._config.for_device(),
            classes=source.classes,
            inputs=source.input_shape,
            activations=CODECS[network.activations],
            gradients=CODECS[network.gradients],
            compression=COMPRESSIONS[network.compression],
            parameter_server=network.parameter_server,
            mean=source.mean,
            std=source.std,
            own_data=network.data == "own",
            features=features,
        )


def addressed(welcome: wire.Welcome, device: int) -> wire.Welcome:
    """Return a welcome with the number of the device that it is for."""
    copy = wire.Welcome()
    copy.CopyFrom(welcome)
    copy.device = device
    return copy


def known_labels(parts: Parts) -> dict[int, tuple[int, ...]]:
    """Return how many of each class devices have, where all have one dataset."""
    if not parts.partition.samples:
        return {}
    counts = parts.partition.label_counts(parts.source.train.labels, len(parts.source.classes))
    return {device: tuple(row) for device, row in enumerate(counts.tolist())}


def common_sizes(parts: Parts) -> dict[wire.Evaluate.Set, int]:
    """Return how many samples the evaluation sets have that are the same for all devices."""
    test = 0 if parts.source.described else len(parts.source.test)
    return {wire.Evaluate.TEST: test, wire.Evaluate.VALIDATION: len(parts.partition.validation)}


def public_sets(parts: Parts) -> dict[wire.Evaluate.Set, EvaluationInputs]:
    """Return the evaluation sets that the server has and its devices do not."""
    source = parts.source
    if source.described:
        return {}
    dtype = next(parts.halves.device.parameters()).dtype

    def test() -> Iterator[Tensor]:
        inputs = batched(source.test, np.arange(len(source.test)), make_evaluation_transform(source))
        return (batch.to(dtype) for batch in inputs)

    return {wire.Evaluate.TEST: test}


def shapes_at_cut(parts: Parts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of one sample's activations, and before the head where devices have it."""
    with torch.no_grad():
        sample = torch.zeros(1, *parts.source.input_shape, dtype=next(parts.halves.device.parameters()).dtype)
        at_cut = parts.halves.device.eval()(sample.to(parts.where))
        parts.halves.device.train()
        if parts.head is None:
            return tuple(at_cut.shape[1:]), ()
        features = parts.halves.server.eval()(at_cut)
        parts.halves.server.train()
    return tuple(at_cut.shape[1:]), tuple(features.shape[1:])


def run_name(folder: RunFolder) -> str:
    """Return what tells this run from all others, to devices that keep checkpoints of several."""
    path = folder.name_file
    if not path.exists():
        write_text(path, uuid.uuid4().hex)
    name = path.read_text(encoding="utf-8", errors="replace").strip()
    if not RUN_NAME.fullmatch(name):
        raise InputError(f"{path} is damaged: it names the run; put it back, or start a new one")
    return name
