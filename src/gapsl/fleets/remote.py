"""The fleet over the network: every device a process of its own, somewhere else.

The run's thread asks and waits; what devices send comes as events from their sessions. A command stays owed
until it is answered and is sent again to a device that comes back, so that a broken link costs time and
nothing else. A device that comes back without what it had in memory begins again from what it stored. Where
the run waits for everybody, everybody goes back with it, so that the end is the same as without it; where it
does not, the record says who went back where, so that the run can be replayed.
"""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gapsl.errors import InputError
from gapsl.net import wire_pb2 as wire
from gapsl.net.agreed import Agreed
from gapsl.net.closing import Closing
from gapsl.net.codec import describe
from gapsl.net.errors import WireError
from gapsl.net.framing import Expected
from gapsl.net.line import Line, late
from gapsl.net.memory import Memory
from gapsl.net.roster import Roster
from gapsl.net.session import Answer, Answered, Due, Event, Inbox, Joined, Left, Session
from gapsl.strategies.exchange import DeviceInfo, Exchange, Reply, Upload
from gapsl.training.fleet import Away, Rewind, Split, Stopped, Traffic, Whose

SETS = {"test": wire.Evaluate.TEST, "validation": wire.Evaluate.VALIDATION}
EvaluationInputs = Callable[[], Iterator[Tensor]]  # the inputs of an evaluation set, batch by batch
REMIND = 10.0  # seconds between two lines that say who is waited for
SLOW = 5.0  # seconds that a deadline gives at least for what is no round: an evaluation batch, a checkpoint


@dataclass(frozen=True)
class Begun:
    """A device has begun from a stored round, or from the start."""

    session: Session


Happening = Joined | Left | Answered | Begun


class RemoteFleet:
    """Devices that are reached through their sessions."""

    def __init__(
        self,
        roster: Roster,
        inbox: Inbox,
        agreed: Agreed,
        memory: Memory,
        *,
        closing: Closing,
        total_rounds: int,
        merges: bool,
        sets: Mapping[wire.Evaluate.Set, EvaluationInputs] | None = None,
        patience: float,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._roster, self._inbox, self._agreed, self._memory = roster, inbox, agreed, memory
        self._closing, self._total_rounds = closing, total_rounds
        # Evaluation sets that devices with data of their own do not have.
        self.merges, self.own_tests, self._sets = merges, sets is not None, sets or {}
        self._patience, self._stop, self._tell = patience, stop, tell
        self._lines = {device: Line(name) for device, name in enumerate(roster.names)}
        nothing = dict.fromkeys(self._lines, 0)
        self.traffic = Traffic(dict(nothing), dict(nothing))
        self.departures = dict(nothing)  # how often each device's link has ended
        self._begun = False  # whether devices are in this process's generation
        self._round = 0  # the one that is open, or was last
        self._open: tuple[int, ...] | None = None  # the exchange that is open: round and turn
        self._arrived: set[int] = set()  # whose uploads of the open exchange are here
        self._absent: list[tuple[int, int]] = []  # turns and devices that a round was closed without
        self._before: dict[
            int, int
        ] = {}  # devices that went back before the round, and the round they went to
        self._after: dict[int, int] = {}  # and those that did after their upload
        self._transfers = 0
        self._stash: deque[Happening] = deque()  # what happened while one device was waited for

    # --- who is there

    @property
    def devices(self) -> Mapping[int, DeviceInfo]:
        """What devices said of their data."""
        return self._memory.devices

    def gather(self) -> None:
        """Wait until every device has said what it has; of a run that goes on that is known already."""
        known = not self._closing.waits and len(self._memory.devices) == len(self._lines)
        while not known and any(line.ready is None for line in self._lines.values()):
            self._next()
        self._memory.keep()

    def common(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's rounds that everybody has who is waited for."""
        if self._closing.waits:
            for line in self._lines.values():
                rounds = self._restorable(line) & set(rounds)
        return max(rounds, default=None)

    def load(self, folder: Path, round: int) -> None:
        """Let every device begin from what it stored after a round, or from the last one before it."""
        self._drain()
        self._memory.begin(round)
        self._begun, self._round, self._arrived, self._transfers = True, round, set(), 0
        self._absent, self._before, self._after = [], {}, {}
        self._stash.clear()
        for device, line in self._lines.items():
            line.reply = None
            if line.session is not None:
                self._begin(device)
        while self._closing.waits and not all(line.free for line in self._lines.values()):
            self._next()

    # --- what every fleet promises

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Ask devices for their activations, and yield them as they arrive."""
        forward = wire.ToDevice(forward=wire.Forward(round=round, turn=exchange.turn, learn=exchange.learn))
        labels = range(0) if self.headed else self._agreed.labels
        due = Due("upload", (round, exchange.turn), self._agreed.upload(), labels)
        opened = time.monotonic()
        for line in self._lines.values():
            if line.session is not None and not line.session.still_welcome():
                self._tell(f"{line.name} is refused: it is no longer who it was")
                line.session = None
        self._round, self._open, self._arrived = round, due.about, set()
        asked: set[int] = set()
        missing = set(exchange.devices)
        while not self._closing.closes(len(exchange.devices), len(self._arrived), time.monotonic() - opened):
            for device in sorted(missing - asked):
                line = self._lines[device]
                if self._closing.waits or line.free:
                    line.ask(forward, due)
                    asked.add(device)
            event = self._next(opened + self._closing.seconds)
            if isinstance(event, Answered) and about(event.answer) == self._open:
                missing.discard(event.session.device)
                self._arrived.add(event.session.device)
                yield self._upload(event)
        self._open = None
        for event in self._kept_uploads():  # they came while another device's head was asked
            self._stash = deque(other for other in self._stash if other is not event)
            self._count(event)
            self._lines[event.session.device].inform(late(round, exchange.turn))
        for device in missing:
            self._absent.append((exchange.turn, device))
            if self._lines[device].session is None:
                self._lines[device].owed.clear()

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Send each device its gradient."""
        for device, reply in sorted(replies.items()):
            line = self._lines[device]
            if (line.turn, device) in self._absent:  # it has gone before its loss was known
                line.inform(late(round, line.turn))
                continue
            header, data = describe(reply.gradient, self._agreed.gradients, self._agreed.compression)
            backward = wire.Backward(round=round, turn=line.turn, step=reply.step, gradient=header)
            line.reply = (wire.ToDevice(backward=backward), data)
            self.traffic.add(device, received=header.bytes)
            line.inform(*line.reply)

    def average(self, weights: Mapping[int, float]) -> None:
        """Let the devices average their halves at the parameter server."""
        for device, size in self._share(weights, keep=self._lines).items():
            self.traffic.add(device, sent=size if device in weights else 0, received=size)

    def hand_over(self, source: int, target: int) -> None:
        """Let a device pass its half on, through the parameter server."""
        sizes = self._share({source: 1.0}, keep=[target])
        self.traffic.add(source, sent=sizes[source])
        self.traffic.add(target, received=sizes[source])

    def probe(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Let a device run an evaluation set to the cut, batch by batch."""
        device = whose if isinstance(whose, int) else min(whose)
        for activations, _ in self._evaluated(SETS[split], device, whose):
            yield activations

    def probe_own(self, device: int, whose: Whose) -> Iterator[tuple[Tensor, Tensor]]:
        """Let a device run its own test samples to the cut, batch by batch."""
        for activations, labels in self._evaluated(wire.Evaluate.OWN, device, whose):
            yield activations, labels if labels is not None else torch.zeros(0, dtype=torch.int64)

    @property
    def headed(self) -> bool:
        """Whether devices have the last layer."""
        return bool(self._agreed.features)

    def judge(self, device: int, features: Tensor) -> tuple[float, Tensor]:
        """Let a device's head compute the loss of its mini-batch; not a number if it has gone."""
        answer = self._through_head(device, wire.Head.LOSS, features, self._agreed.judged(len(features)))
        if answer is None or answer.tensor is None:
            self._absent.append((self._lines[device].turn, device))
            return math.nan, torch.zeros_like(features)
        assert isinstance(answer.answer, wire.Judged)
        self.traffic.add(device, sent=answer.answer.tensor.bytes, received=features.nbytes)
        return answer.answer.loss, answer.tensor.to(self._agreed.where)

    def predict(self, device: int, features: Tensor) -> Tensor:
        """Let a device's head compute the logits of an evaluation batch."""
        answer = self._through_head(device, wire.Head.LOGITS, features, self._agreed.logits(len(features)))
        if answer is None or answer.tensor is None:
            raise Away(f"{self._lines[device].name} is away")
        return answer.tensor.to(self._agreed.where)

    def count_own(self, device: int, batch: int, features: Tensor) -> tuple[int, int]:
        """Let a device count how many of a batch of its own test samples are right; returns both numbers."""
        answer = self._through_head(device, wire.Head.COUNT, features, None, batch)
        if answer is None or not isinstance(answer.answer, wire.Judged):
            raise Away(f"{self._lines[device].name} is away")
        return answer.answer.samples, answer.answer.right

    def _through_head(
        self, device: int, what: wire.Head.What, features: Tensor, expected: Expected | None, batch: int = 0
    ) -> Answered | None:
        """Send features to a head and wait for its answer; what others say meanwhile is kept for later."""
        codec = self._agreed.activations if what == wire.Head.LOSS else wire.PLAIN
        header, payload = describe(features, codec, self._agreed.compression)
        message = wire.ToDevice(head=wire.Head(what=what, batch=batch, features=header))
        line, waits = self._lines[device], self._closing.waits
        if line.session is None and not waits:
            return None
        line.ask(message, Due("judged", (), expected), payload)
        until = None if waits else time.monotonic() + max(self._closing.seconds, SLOW)
        while True:
            event = self._event(until)
            if event is None:
                self._cut_off(device)
                return None
            if isinstance(event, Answered) and event.session.device == device:
                return event
            gone = isinstance(event, Left | Joined) and event.session.device == device and not waits
            if gone:
                line.owed.clear()
            if isinstance(event, Joined):
                self._joined(event.session.device)
            elif not gone:
                self._stash.append(event)
            if gone:
                return None

    def drifts(self) -> Mapping[int, float]:
        """Ask the devices how far their halves are from their start."""
        return {device: status.drift for device, status in self._statuses()}

    def digests(self) -> Mapping[int, str]:
        """Ask the devices for the SHA-256 of their halves."""
        return {device: status.sha256 for device, status in self._statuses()}

    def save(self, folder: Path, round: int) -> None:
        """Let the devices store their state, where they are."""
        if round == 0:  # anybody can go back to the start
            return
        stored = wire.Stored(round=round, generation=self._memory.lineage.current)
        for event in self._asked(self._lines, wire.ToDevice(save=wire.Save(round=round)), Due("done")):
            ready = self._lines[event.session.device].ready
            assert ready is not None
            ready.stored.append(stored)

    def happened(self) -> Mapping[str, Any]:
        """Return who was missing, and who went back to an earlier state of its own."""
        found = {"absent": self._absent, "restored_before": self._before, "restored_after": self._after}
        self._absent, self._before, self._after = [], {}, {}
        return {name: value for name, value in found.items() if value}

    # --- asking and waiting

    def _evaluated(
        self, what: wire.Evaluate.Set, device: int, whose: Whose
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        lent = whose != device
        if lent:
            self._share({whose: 1.0} if isinstance(whose, int) else whose, lend=device)
        while not any(line.session is not None for line in self._lines.values()):
            self._next()
        labels = self._agreed.classes if what == wire.Evaluate.OWN and not self.headed else range(0)
        given = batches_with_last(self._sets[what]()) if what in self._sets else None
        batch, last = 0, False
        while not last:
            evaluate = wire.Evaluate(set=what, batch=batch, shared=lent)
            payload: Sequence[memoryview] = ()
            if given is not None:
                inputs, evaluate.last = next(given)
                if (what, batch) not in self._lines[device].has:
                    header, payload = describe(inputs, wire.PLAIN)
                    evaluate.inputs.CopyFrom(header)
            due = Due("scored", (batch,), self._agreed.scored(), labels)
            message = wire.ToDevice(evaluate=evaluate)
            answers = list(self._asked([device], message, due, payload=payload, wait=lent))
            if not answers:
                raise Away(f"{self._lines[device].name} is away")
            tensor, scored = answers[0].tensor, answers[0].answer
            assert tensor is not None and isinstance(scored, wire.Scored)
            self._lines[device].has.add((what, batch))
            last = scored.last
            batch += 1
            yield self._agreed.placed(tensor), answers[0].labels

    def _statuses(self) -> list[tuple[int, wire.Status]]:
        answers = self._asked(self._lines, wire.ToDevice(ask=wire.Ask()), Due("status"))
        found = {event.session.device: event.answer for event in answers}
        return [
            (device, status) for device, status in sorted(found.items()) if isinstance(status, wire.Status)
        ]

    def _share(
        self, weights: Mapping[int, float], *, keep: Collection[int] = (), lend: int | None = None
    ) -> dict[int, int]:
        """Let devices average halves; returns the size of each one's half."""
        self._transfers += 1
        name = f"{self._memory.lineage.current:x}-{self._round}-{self._transfers}"
        taking_part = sorted({*weights, *keep, *(() if lend is None else (lend,))})
        for device in taking_part:
            share = wire.Share(
                transfer=name, weights=weights, fetch=device in keep or device == lend, keep=device in keep
            )
            self._lines[device].ask(wire.ToDevice(share=share), Due("done"))
        answers = {event.session.device: event.answer for event in self._answers(taking_part)}
        return {d: done.size for d, done in answers.items() if isinstance(done, wire.Done)}

    def _asked(
        self,
        devices: Iterable[int],
        message: wire.ToDevice,
        due: Due,
        *,
        payload: Sequence[memoryview] = (),
        wait: bool = False,
    ) -> Iterator[Answered]:
        """Ask devices, and yield their answers; who is away is left out unless it is waited for."""
        wait = wait or self._closing.waits
        asked = [d for d in devices if wait or self._lines[d].session is not None]
        for device in asked:
            self._lines[device].ask(message, due, payload)
        yield from self._answers(asked, wait=wait)

    def _answers(self, devices: Iterable[int], *, wait: bool = True) -> Iterator[Answered]:
        missing = set(devices)
        until = None if wait else time.monotonic() + max(self._closing.seconds, SLOW)
        while missing:
            event = self._next(until)
            if event is None:
                for device in missing:
                    self._cut_off(device)
                return
            device = event.session.device
            if (
                isinstance(event, Answered)
                and device in missing
                and not isinstance(event.answer, wire.Upload)
            ):
                missing.remove(device)
                yield event
            elif isinstance(event, Left | Joined) and device in missing and not wait:
                missing.remove(device)

    def _cut_off(self, device: int) -> None:
        """End the link of a device that is connected, but silent; if it lives it comes back."""
        line = self._lines[device]
        line.owed.clear()
        if line.session is not None:
            line.session.refuse(WireError(wire.LATE, "no answer in time; nothing is lost, join again"))
            line.session = None
            self.departures[device] += 1
            self._tell(f"{line.name} does not answer, and is not waited for")

    def _upload(self, event: Answered) -> Upload:
        assert isinstance(event.answer, wire.Upload)
        assert event.tensor is not None
        device, answer = event.session.device, event.answer
        self._lines[device].turn = answer.turn
        labels = event.labels if event.labels is not None else torch.zeros(0, dtype=torch.int64)
        activations, labels = self._agreed.placed(event.tensor), labels.to(self._agreed.where)
        return Upload(device, answer.round, answer.turn, activations, labels)

    def _drain(self) -> None:
        """Wait for the answers that are on their way; what they are about has no meaning any more."""
        for line in self._lines.values():
            while len(line.owed) > 1 or (line.owed and line.session is None):
                line.owed.pop()
            if line.session is not None and line.owed and line.owed[0].kind == "share":
                # It waits at the parameter server for others, who will not come.
                line.session.close()
                line.session = None
                line.owed.clear()
        while any(line.owed for line in self._lines.values()):
            event = self._event(None)
            if isinstance(event, Joined | Left):
                self._lines[event.session.device].owed.clear()

    def _next(self, until: float | None = None) -> Happening | None:
        """Wait for something to happen, and do what has to follow; None: the time is up."""
        event = self._stash.popleft() if self._stash else self._event(until)
        if isinstance(event, Joined):
            self._joined(event.session.device)
        elif isinstance(event, Left):
            line = self._lines[event.session.device]
            if not self._closing.waits and line.session is None:
                line.owed = type(line.owed)(o for o in line.owed if o.kind in ("forward", "share"))
        elif isinstance(event, Answered):
            self._count(event)
        return event

    def _count(self, event: Answered) -> None:
        """Count the bytes of an upload, as a device of this process does."""
        if isinstance(event.answer, wire.Upload):
            size = event.answer.activations.bytes + 8 * len(event.answer.labels)
            self.traffic.add(event.session.device, sent=size)

    def _kept_uploads(self) -> list[Answered]:
        """Return the uploads among what is kept for later."""
        kept = [event for event in self._stash if isinstance(event, Answered)]
        return [event for event in kept if isinstance(event.answer, wire.Upload)]

    def _joined(self, device: int) -> None:
        line = self._lines[device]
        assert line.ready is not None
        beginning = bool(line.owed) and line.owed[0].kind == "begin"
        if beginning:
            line.owed.popleft()
        if not self._begun:
            return
        if line.ready.generation == self._memory.lineage.current and not beginning:
            here = device in self._arrived or any(e.session.device == device for e in self._kept_uploads())
            line.came_back(self._open if here else None)
            return
        sharing = any(owed.kind == "share" for owed in line.owed)
        if (self._closing.waits and not beginning) or sharing or self._round == self._total_rounds:
            line.owed.clear()  # it was asked before it left: no answer is on its way
            raise Rewind(f"{line.name} has come back without what it had in memory")
        self._begin(device)

    def _begin(self, device: int) -> None:
        """Let a device begin from the newest of its states that counts."""
        line, generation = self._lines[device], self._memory.lineage.current
        round = max(self._restorable(line))
        if self._closing.waits and round != self._round:
            raise Rewind(f"{line.name} has lost its checkpoint of round {self._round}")
        if round != self._round:
            (self._after if device in self._arrived else self._before)[device] = round
        begin = wire.Begin(round=round, total_rounds=self._total_rounds, generation=generation)
        line.ask_first(wire.ToDevice(begin=begin), Due("done"))

    def _restorable(self, line: Line) -> set[int]:
        return self._memory.lineage.restorable(line.ready.stored if line.ready is not None else ())

    def _event(self, until: float | None) -> Happening | None:
        """Wait for an event and take note of who is there and what is answered."""
        given_up = time.monotonic() + self._patience
        while (event := self._wait(until, given_up)) is not None:
            line = self._lines[event.session.device]
            if isinstance(event, Joined):
                try:
                    self._memory.check(
                        event.session.device, event.ready, self._agreed.labels.stop, secret=self.headed
                    )
                except WireError as error:
                    self._tell(f"{line.name} is refused: {error}")
                    event.session.refuse(error)
                    continue
                line.session, line.ready, line.has = event.session, event.ready, set()
                self._tell(f"{line.name} is here")
                return event
            if line.session is not event.session:  # of a connection that has ended
                continue
            if isinstance(event, Left):
                line.session = None
                self.departures[event.session.device] += 1
                self._tell(f"{line.name} has left: {event.reason}")
                return event
            upload = event.answer
            if isinstance(upload, wire.Upload) and about(upload) != self._open:
                line.inform(late(upload.round, upload.turn))  # before what it is asked next
            return Begun(event.session) if line.answered().kind == "begin" else event
        return None

    def _wait(self, until: float | None, given_up: float) -> Event | None:
        """Wait for whatever a session has to say; None: the time is up."""
        reminded = time.monotonic()
        while True:
            if self._stop() and not self._running():
                raise Stopped("asked to stop")
            now = time.monotonic()
            if until is not None and now >= until and self._inbox.empty():
                return None
            if now >= given_up:
                raise InputError(
                    f"nothing from {self._awaited()} for {self._patience:.0f} s; nothing is lost: "
                    "start who is away, then the server again"
                )
            try:
                wait = min(0.5, given_up - now, *(() if until is None else (until - now,)))
                return self._inbox.get(timeout=max(0.001, wait))
            except queue.Empty:
                if now - reminded >= REMIND:
                    reminded = now
                    self._tell(f"waiting for {self._awaited()}")

    def _awaited(self) -> str:
        away = [line.name for line in self._lines.values() if line.session is None]
        slow = [line.name for line in self._lines.values() if line.session is not None and line.owed]
        return ", ".join(away or slow) or "the devices"

    def _running(self) -> bool:
        """Say whether enough are there for a round to end, so that a stop can wait for it."""
        there = sum(line.session is not None for line in self._lines.values())
        return self._begun and self._closing.closes(len(self._lines), there, math.inf)


def batches_with_last(batches: Iterator[Tensor]) -> Iterator[tuple[Tensor, bool]]:
    """Yield batches, and whether each is the last."""
    held = next(batches)
    for batch in batches:
        yield held, False
        held = batch
    yield held, True


def about(answer: Answer) -> tuple[int, int] | None:
    """Return the round and turn of an upload; None: it is something else."""
    return (answer.round, answer.turn) if isinstance(answer, wire.Upload) else None
