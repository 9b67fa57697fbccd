"""Training with devices elsewhere: `gapsl serve` and `gapsl.serve`."""

from __future__ import annotations

import logging
import math
import queue
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc

from gapsl.common.errors import GapslError, Stopped
from gapsl.common.files import room_needed, write_text
from gapsl.common.reading import read_text
from gapsl.fleets.remote import RemoteFleet
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import TRAINING
from gapsl.network.protocol.settings import Network
from gapsl.network.server.device_link import listing
from gapsl.network.server.service import Roster, Service
from gapsl.network.server.session import Heard, Inbox
from gapsl.network.serving import Identify, Serving, server_security
from gapsl.run.api import extended, refuse_fewer, told_apart
from gapsl.run.build import make_parts, make_training
from gapsl.run.config import Config
from gapsl.run.environment import threads
from gapsl.run.folder import RunFolder
from gapsl.run.loop import Training
from gapsl.run.metrics import Metrics
from gapsl.run.named_observers import make_observers
from gapsl.run.observers import Observer, Started
from gapsl.run.records import RoundRecord, RunResult
from gapsl.run.served_run import (
    MUTUAL_TLS,
    PLAIN_TEXT,
    check_served,
    discard,
    make_remote_fleet,
    opened,
    refuse_incomplete,
    refuse_plainer,
    served_settings,
    settled,
    was_secure,
    write_network,
)
from gapsl.run.status import RECENT

FAREWELL_SECONDS = 20.0  # that a finished run waits for devices that do not know it yet, who try every 15

log = logging.getLogger("gapsl")


def serve(
    config: Config | str | Path | None = None,
    *,
    out: str | Path,
    listen: str = "localhost:7443",
    preset: str | None = None,
    network: Network | Mapping[str, Any] | None = None,
    certs: str | Path | None = None,
    insecure: bool = False,
    metrics: str = "",
    observers: Sequence[Observer | str] = (),
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> RunResult | None:
    """Serve a run to its devices until it is finished, and return its result; None if `stop` ended it early.

    A run that is in `out` goes on, from the newest checkpoint that all devices have. `network` has the
    settings of that section, `settings` those of the run. What happens is logged by the logger "gapsl".
    """
    folder = Path(out).expanduser()
    told, by_name = told_apart(observers)
    section = network.model_dump(mode="json") if isinstance(network, Network) else network
    words = {**settings, **by_name, **({} if section is None else {"network": section})}
    chosen, agreed = served_settings(config, preset, words, folder)
    return serve_run(chosen, agreed, folder, listen, certs, insecure, metrics, told, stop)


def serve_run(
    chosen: Config,
    agreed: Network,
    folder: Path,
    listen: str,
    certs: str | Path | None,
    insecure: bool,
    metrics: str,
    observers: Sequence[Observer],
    stop: Callable[[], bool],
) -> RunResult | None:
    """Serve the run with these settings; its folder says where it listens."""
    credentials, identify = server_security(listen, certs, insecure, "server")
    if credentials is None and not insecure:
        refuse_plainer(folder)
    host, names = listen.rpartition(":")[0], agreed.device_names(chosen.devices)

    def started(port: int) -> None:
        security = MUTUAL_TLS if credentials is not None else PLAIN_TEXT
        log.info("serving %s on %s:%d (%s), run in %s", chosen.method, host, port, security, folder)
        # Once in plain text is not for good.
        write_text(RunFolder(folder).security_file, MUTUAL_TLS if was_secure(folder) else security)
        write_text(RunFolder(folder).address_file, f"{host}:{port}")
        log.info("waiting for %s", listing(names))

    watching = [RoundLog(names), *observers]
    listening = Listening(listen, credentials, identify, started, stop, log.info, watching, metrics)
    return train_remotely(chosen, agreed, folder, listening)


class RoundLog(Observer):
    """Says how the run goes on, in log lines: of rounds in which nothing happens, one per second at most."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._total, self._said = 0, -math.inf
        self._ends: deque[float] = deque(maxlen=RECENT + 1)  # of the last rounds

    def started(self, run: Started) -> None:
        log.info("%s: round %d of %d", run.method, run.first_round, run.total_rounds)
        self._total = run.total_rounds
        self._ends.append(time.monotonic())

    def round(self, record: RoundRecord) -> None:
        self._ends.append(now := time.monotonic())
        worth_it = record.evaluation or record.events.absent or record.round == self._total
        if not worth_it and now - self._said < 1:
            return
        self._said = now
        fields: dict[str, Any] = {"round": record.round}
        words = [f"round {record.round}/{self._total}"]
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
        seconds = (now - self._ends[0]) / (len(self._ends) - 1)
        left = timedelta(seconds=round(seconds * (self._total - record.round)))
        words.append(f"({seconds:.2g} s per round, {left} left)")
        log.info(" ".join(words), extra={"fields": fields})

    def warned(self, message: str) -> None:
        log.warning(message)


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
    network = settled(config, network)
    check_served(config, network)
    folder = RunFolder(out)
    again = f"gapsl serve --out {shlex.quote(str(out))}"
    with room_needed(out, again), folder.locked(), threads(config.threads):
        refuse_incomplete(folder)
        new = opened(folder, config, network)
        server = Server(config, network, folder, listening)
        try:
            done = finished(folder, config.extended_to)
            result = server.prepare().run() if done is None else done
            if result is not None:
                server.farewell()
            return result
        except Stopped:  # while devices were waited for
            return None
        except GapslError:
            if new and not server.listened:
                discard(folder)
            raise
        finally:
            server.stop("the server stops; it goes on when it is started again")


def finished(folder: RunFolder, rounds: int | None) -> RunResult | None:
    """Return the result of a run that is finished, unless it is to go on beyond that, to so many rounds."""
    done = folder.result()
    if done is None or rounds in (None, done.rounds):
        return done
    assert rounds is not None
    refuse_fewer(folder, rounds, done.rounds)
    return None


class Server:
    """A run in progress, and the service its devices speak to."""

    def __init__(self, config: Config, network: Network, folder: RunFolder, listening: Listening) -> None:
        self._config, self._network, self._folder, self._listening = config, network, folder, listening
        self._roster = Roster(network.device_names(config.devices), Inbox(), self._note)
        self._service: Service | None = None
        self._serving: Serving | None = None

    @property
    def listened(self) -> bool:
        """Whether devices may have heard of the run."""
        return self._serving is not None

    def _note(self, connected: list[str]) -> None:
        """Write down who is connected, for `gapsl status`; a run does not stop for it."""
        with suppress(OSError):
            write_text(self._folder.connected_file, "".join(f"{name}\n" for name in connected))

    def prepare(self) -> Training:
        """Gather the devices, build the run, and go back to where all of them can go on from."""
        listening, folder, own_data = self._listening, self._folder, self._network.data == "own"
        stored, custom = folder.config()
        planned = self._config.model_copy(update={"extended_to": stored.extended_to})
        parts = make_parts(planned, partition_file=folder.partition_file, own_data=own_data)
        if self._config.extended_to is not None:
            parts = extended(folder, parts, self._config.extended_to, custom)
        fleet, welcome = make_remote_fleet(
            parts, self._network, folder, self._roster, stop=listening.stop, tell=listening.tell
        )
        self._note([])
        metrics = self._measured(fleet)  # before devices are waited for: who is missing is in them
        self._listen(Service(self._roster, welcome, listening.identify, listening.tell))
        write_network(folder, self._network)  # of which some may have changed, and now stays
        fleet.dispatcher.gather()
        by_name = make_observers(self._config.observer_names, folder.path)
        return make_training(
            parts,
            fleet,
            folder=folder,
            observers=[*listening.observers, *metrics, *by_name],
            stop=listening.stop,
            custom={"partition": "own data"} if own_data else {},
        ).resume()

    def _measured(self, fleet: RemoteFleet) -> list[Observer]:
        place = self._folder.metrics_file
        place.unlink(missing_ok=True)
        if not self._listening.metrics:
            return []
        metrics = Metrics(self._roster.names, self._roster.connected, lambda: fleet.dispatcher.departures)
        port = metrics.serve(self._listening.metrics)
        host = self._listening.metrics.rpartition(":")[0] or "localhost"
        write_text(place, f"{host}:{port}")
        self._listening.tell(f"metrics on port {port}")
        return [metrics]

    def farewell(self) -> None:
        """Tell every device that the run is over, and wait a little for those who are away."""
        file = self._folder.told_file
        told = set(read_text(file, errors="replace").split()) if file.exists() else set()
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
        streams, credentials = len(self._roster.names), listening.credentials
        self._serving = Serving(TRAINING, "Join", service.join, listening.address, streams, credentials)
        listening.started(self._serving.port)
