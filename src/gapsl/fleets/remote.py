"""The fleet over the network: every device a process of its own, somewhere else.

The run's thread asks and waits; what devices send comes as events from their sessions. A command stays owed
until it is answered and is sent again to a device that comes back, so that a broken link costs time and
nothing else. A device that comes back without what it had in memory sends everybody back to the last round
that all can restore.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from gapsl.errors import InputError
from gapsl.net import wire_pb2 as wire
from gapsl.net.codec import describe
from gapsl.net.framing import AtMost, Expected
from gapsl.net.roster import Roster
from gapsl.net.session import Answered, Due, Inbox, Joined, Left, Session
from gapsl.strategies.exchange import DeviceInfo, Exchange, Reply, Upload
from gapsl.training.fleet import Rewind, Split, Traffic, Whose

SETS = {"test": wire.Evaluate.TEST, "validation": wire.Evaluate.VALIDATION}


@dataclass(frozen=True)
class Agreed:
    """What the server and the devices agreed on about what crosses the cut."""

    dtype: wire.Dtype
    cut: tuple[int, ...]  # the shape of one sample's activations
    rows: int  # of a mini-batch
    evaluation_rows: int  # of an evaluation batch, at most
    labels: range  # what labels may be
    activations: wire.Codec = wire.PLAIN
    gradients: wire.Codec = wire.PLAIN
    compression: wire.Compression = wire.UNCOMPRESSED
    layout: torch.memory_format = torch.contiguous_format
    where: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def upload(self) -> Expected:
        """Return what a mini-batch's activations are."""
        return Expected(self.dtype, (self.rows, *self.cut), (self.activations,), (self.compression,))

    def scored(self) -> Expected:
        """Return what an evaluation batch's activations are."""
        shape: tuple[int | AtMost, ...] = (AtMost(self.evaluation_rows), *self.cut)
        return Expected(self.dtype, shape, (self.activations,), (self.compression,))

    def placed(self, tensor: Tensor) -> Tensor:
        """Return what arrived where the server computes, in its memory order."""
        tensor = tensor.to(self.where)
        return tensor.contiguous(memory_format=self.layout) if tensor.dim() == 4 else tensor


@dataclass(frozen=True)
class Owed:
    """A command without its answer."""

    message: wire.ToDevice
    due: Due


class RemoteFleet:
    """Devices that are reached through their sessions."""

    merges = False

    def __init__(
        self,
        roster: Roster,
        inbox: Inbox,
        agreed: Agreed,
        *,
        patience: float,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._roster, self._inbox, self._agreed = roster, inbox, agreed
        self._patience, self._tell = patience, tell
        self.devices: dict[int, DeviceInfo] = {}
        nothing = dict.fromkeys(range(len(roster.names)), 0)
        self.traffic = Traffic(dict(nothing), dict(nothing))
        self._ready: dict[int, wire.Ready] = {}
        self._sessions: dict[int, Session] = {}
        self._owed: dict[int, Owed] = {}
        self._replied: dict[int, tuple[wire.ToDevice, list[memoryview]]] = {}
        self._turns: dict[int, int] = {}  # of the last exchange with each device
        self._generation = 0
        self.total_rounds = 0

    # --- who is there

    def gather(self) -> None:
        """Wait until every device of the run has said what it has."""
        while len(self._ready) < len(self._roster.names):
            self._next()
        for device, ready in sorted(self._ready.items()):
            counts = tuple(ready.label_counts)
            self.devices[device] = DeviceInfo(ready.samples, counts, ready.batches_per_pass)

    def restorable(self) -> set[int]:
        """Return the rounds that every device can go back to."""
        return set.intersection(*(set(ready.stored) for ready in self._ready.values()))

    def begin(self, round: int) -> None:
        """Let every device begin from a round: its start, or what it stored then."""
        while self._owed:  # what was asked before has no meaning any more, but its answer is on the way
            self._next(beginning=True)
        self._generation += 1
        self._replied.clear()
        begin = wire.Begin(round=round, total_rounds=self.total_rounds, generation=self._generation)
        self._ask_all(wire.ToDevice(begin=begin), Due("done"))

    # --- what every fleet promises

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Ask devices for their activations, and yield them as they arrive."""
        forward = wire.Forward(round=round, turn=exchange.turn, learn=exchange.learn)
        due = Due("upload", (round, exchange.turn), self._agreed.upload(), self._agreed.labels)
        for device in exchange.devices:
            self._turns[device] = exchange.turn
            self._ask(device, wire.ToDevice(forward=forward), due)
        for event in self._answers(exchange.devices):
            assert event.tensor is not None and event.labels is not None
            upload = Upload(
                event.session.device,
                round,
                exchange.turn,
                self._agreed.placed(event.tensor),
                event.labels.to(self._agreed.where),
            )
            self.traffic.add(upload.device, sent=upload.nbytes)
            yield upload

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Send each device its gradient."""
        for device, reply in sorted(replies.items()):
            header, data = describe(reply.gradient, self._agreed.gradients, self._agreed.compression)
            backward = wire.Backward(round=round, turn=self._turns[device], step=reply.step, gradient=header)
            message = wire.ToDevice(backward=backward)
            self._replied[device] = (message, data)
            self.traffic.add(device, received=reply.nbytes)
            session = self._sessions.get(device)
            if session is not None:
                session.command(message, None, data)

    def average(self, weights: Mapping[int, float]) -> None:
        """Average halves at the parameter server."""
        raise InputError("this method averages halves; start a parameter server")

    def hand_over(self, source: int, target: int) -> None:
        """Pass a half on at the parameter server."""
        raise InputError("this method passes halves on; start a parameter server")

    def probe(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Let a device run an evaluation set to the cut, batch by batch."""
        if not isinstance(whose, int):
            raise InputError("halves are merged at a parameter server; start one")
        batch, last = 0, False
        while not last:
            evaluate = wire.Evaluate(set=SETS[split], batch=batch)
            due = Due("scored", (batch,), self._agreed.scored())
            self._ask(whose, wire.ToDevice(evaluate=evaluate), due)
            (event,) = self._answers([whose])
            assert event.tensor is not None and isinstance(event.answer, wire.Scored)
            last = event.answer.last
            batch += 1
            yield self._agreed.placed(event.tensor)

    def drifts(self) -> Mapping[int, float]:
        """Ask every device how far its half is from its start."""
        return {device: status.drift for device, status in self._statuses().items()}

    def digests(self) -> Mapping[int, str]:
        """Ask every device for the SHA-256 of its half."""
        return {device: status.sha256 for device, status in self._statuses().items()}

    def save(self, folder: Path, round: int) -> None:
        """Let every device store its state, where it is."""
        self._ask_all(wire.ToDevice(save=wire.Save(round=round)), Due("done"))
        for ready in self._ready.values():
            ready.stored.append(round)

    def load(self, folder: Path, round: int) -> None:
        """Let every device go back to what it stored."""
        self.begin(round)

    def goodbye(self, reason: str, *, finished: bool) -> None:
        """Tell everybody that the run is over, or that the server stops."""
        for session in self._roster.connected().values():
            session.close(wire.ToDevice(goodbye=wire.Goodbye(reason=reason, finished=finished)))

    # --- asking and waiting

    def _statuses(self) -> dict[int, wire.Status]:
        answers = self._ask_all(wire.ToDevice(ask=wire.Ask()), Due("status"))
        return {d: answer for d, answer in sorted(answers.items()) if isinstance(answer, wire.Status)}

    def _ask_all(self, message: wire.ToDevice, due: Due) -> dict[int, object]:
        devices = range(len(self._roster.names))
        for device in devices:
            self._ask(device, message, due)
        return {event.session.device: event.answer for event in self._answers(devices)}

    def _ask(self, device: int, message: wire.ToDevice, due: Due) -> None:
        self._owed[device] = Owed(message, due)
        session = self._sessions.get(device)
        if session is not None:
            session.command(message, due)

    def _answers(self, devices: Iterable[int]) -> Iterator[Answered]:
        missing = set(devices)
        while missing:
            event = self._next()
            if isinstance(event, Answered) and event.session.device in missing:
                missing.remove(event.session.device)
                yield event

    def _next(self, *, beginning: bool = False) -> Joined | Left | Answered:
        """Wait for something to happen, and take note of it."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                event = self._inbox.get(timeout=max(0.1, min(10.0, deadline - time.monotonic())))
                break
            except queue.Empty:
                away = [name for d, name in enumerate(self._roster.names) if d not in self._sessions]
                self._tell(f"waiting for {', '.join(away) or 'answers'}")
                if time.monotonic() > deadline:
                    raise InputError(
                        f"nothing from {', '.join(away) or 'the devices'} for {self._patience:.0f} s; "
                        "start the devices that are away, then the server again"
                    ) from None
        device = event.session.device
        if isinstance(event, Left):
            if self._sessions.get(device) is event.session:
                del self._sessions[device]
                self._tell(f"{event.session.name} has left: {event.reason}")
            if beginning:
                self._owed.pop(device, None)
        elif isinstance(event, Answered):
            if self._sessions.get(device) is event.session:
                self._owed.pop(device, None)
        else:
            self._joined(event, beginning=beginning)
        return event

    def _joined(self, event: Joined, *, beginning: bool) -> None:
        session, ready = event.session, event.ready
        device = session.device
        known = device in self._ready and self._generation > 0
        self._sessions[device], self._ready[device] = session, ready
        self._tell(f"{session.name} is here")
        if not known or beginning:
            self._owed.pop(device, None) if beginning else None
            return
        if ready.generation != self._generation:
            raise Rewind(f"{session.name} has come back without what it had in memory", self.restorable())
        if ready.waiting and device in self._replied:
            message, data = self._replied[device]
            if (message.backward.round, message.backward.turn) == (ready.round, ready.turn):
                session.command(message, None, data)
        if device in self._owed:
            owed = self._owed[device]
            session.command(owed.message, owed.due)
