"""The fleet over the network: every device a process of its own, somewhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gapsl.device.exchange import DeviceInfo, Exchange, Reply, Upload
from gapsl.fleets.base import Away, FleetEvents, Split, Whose
from gapsl.models.half import all_finite
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.contract import Agreed
from gapsl.network.protocol.framing import Expected
from gapsl.network.server.device_link import late
from gapsl.network.server.dispatcher import SLOW, Correspondence, about
from gapsl.network.server.fleet_state import Memory
from gapsl.network.server.roster import Roster
from gapsl.network.server.round_policy import Closing
from gapsl.network.server.session import Answered, Due

OWN_TESTS = 12  # times what a batch has under a deadline: for all of a device's own test samples
SETS = {"test": wire.Evaluate.TEST, "validation": wire.Evaluate.VALIDATION}
EvaluationInputs = Callable[[], Iterator[Tensor]]  # the inputs of an evaluation set, batch by batch


class RemoteFleet:
    """Devices that are asked by letter; the correspondence sees to those who are away."""

    def __init__(
        self,
        roster: Roster,
        agreed: Agreed,
        memory: Memory,
        *,
        closing: Closing,
        total_rounds: int,
        merges: bool,
        half_bytes: int = 0,
        sizes: Mapping[wire.Evaluate.Set, int] | None = None,
        sets: Mapping[wire.Evaluate.Set, EvaluationInputs] | None = None,
        patience: float,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._agreed, self._memory, self._closing = agreed, memory, closing
        self.merges, self._half_bytes = merges, half_bytes
        # Evaluation sets that devices with their own data do not have, and the sizes of all common ones.
        self.own_tests, self._sets, self._sizes = sets is not None, sets or {}, sizes or {}
        self.post = Correspondence(
            roster.names,
            roster.inbox,
            memory,
            partial(
                memory.check,
                classes=agreed.classes,
                samples=agreed.rows - agreed.probes,
                secret=bool(agreed.features),
            ),
            closing=closing,
            total_rounds=total_rounds,
            patience=patience,
            stop=stop,
            tell=tell,
        )
        self._lines, self.traffic, self.departures = self.post.lines, self.post.traffic, self.post.departures
        self._tell = tell
        self._absent: list[tuple[int, int]] = []  # turns and devices that a round was closed without
        self._transfers = 0

    @property
    def devices(self) -> Mapping[int, DeviceInfo]:
        """What devices said of their data."""
        return self._memory.devices

    def gather(self) -> None:
        """Wait until every device has said what it has."""
        self.post.gather()

    def common(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's rounds that everybody has who is waited for."""
        return self.post.common(rounds)

    def load(self, folder: Path, round: int) -> None:
        """Let every device begin from what it stored after a round, or from the last one before it."""
        self._absent, self._transfers = [], 0
        self.post.begin(round)

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Ask devices for their activations, and yield them as they arrive."""
        forward = wire.ToDevice(forward=wire.Forward(round=round, turn=exchange.turn, learn=exchange.learn))
        labels = range(0) if self.headed else self._agreed.labels
        probes = self._agreed.probes if labels else 0
        due = Due("upload", (round, exchange.turn), self._agreed.upload(), labels, probes)
        opened = time.monotonic()
        self.post.open_exchange(round, exchange.turn)
        asked: set[int] = set()
        missing = set(exchange.devices)
        while not self._closing.closes(
            len(exchange.devices), len(self.post.arrived), time.monotonic() - opened
        ):
            for device in sorted(missing - asked):
                line = self._lines[device]
                if self._closing.waits or line.free:
                    line.ask(forward, due)
                    asked.add(device)
            ends = opened + self._closing.seconds
            # Past its end a round with too few is open until they come, or patience ends.
            event = self.post.next(ends if time.monotonic() < ends else None)
            if isinstance(event, Answered) and about(event.answer) == self.post.open:
                missing.discard(event.session.device)
                self.post.arrived.add(event.session.device)
                if not exchange.learn:
                    self._reply(event.session.device, wire.Backward(round=round, turn=exchange.turn))
                yield self._upload(event)
        self.post.close_exchange(missing)
        self._absent.extend((exchange.turn, device) for device in missing)

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Send each device its gradient."""
        for device, reply in sorted(replies.items()):
            line = self._lines[device]
            if (line.turn, device) in self._absent:  # it has gone before its loss was known
                line.inform(late(round, line.turn))
                continue
            header, data = describe(reply.pack(), self._agreed.gradients, self._agreed.compression)
            self.traffic.add(device, received=header.bytes)
            backward = wire.Backward(round=round, turn=line.turn, step=reply.step, gradient=header)
            if device not in self.post.anew:
                self._reply(device, backward, data)

    def _reply(self, device: int, backward: wire.Backward, data: Sequence[memoryview] = ()) -> None:
        """Answer an upload, so that the device knows that it counts; without a gradient it learns nothing."""
        line = self._lines[device]
        line.reply = (wire.ToDevice(backward=backward), data)
        line.inform(*line.reply)

    def gone(self) -> Collection[int]:
        """Return the devices that this round has lost."""
        return {device for _, device in self._absent}

    def average(self, weights: Mapping[int, float]) -> None:
        """Let the devices average their halves at the parameter server."""
        self.post.gone_back.halves_move()
        self._share(weights, keep=self._lines)
        size = self._half_bytes
        for device in self._lines:
            self.traffic.add(device, sent=size if device in weights else 0, received=size)

    def hand_over(self, source: int, target: int) -> None:
        """Let a device pass its half on, through the parameter server."""
        self._share({source: 1.0}, keep=[target])
        self.traffic.add(source, sent=self._half_bytes)
        self.traffic.add(target, received=self._half_bytes)

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
        if not all_finite(features):  # the loss would not be, and not every codec can write it
            return math.nan, torch.zeros_like(features)
        answer, asked = None, 0
        if device not in self.post.anew:  # else it does not know its mini-batch any more
            expected = self._agreed.judged(len(features))
            answer, asked = self._through_head(device, wire.Head.LOSS, features, expected)
        if answer is None or answer.tensor is None:
            self._absent.append((self._lines[device].turn, device))
            return math.nan, torch.zeros_like(features)
        assert isinstance(answer.answer, wire.Judged)
        self.traffic.add(device, sent=answer.answer.tensor.bytes, received=asked)
        return answer.answer.loss, answer.tensor.to(self._agreed.where)

    def predict(self, device: int, features: Tensor) -> Tensor:
        """Let a device's head compute the logits of an evaluation batch."""
        answer, _ = self._through_head(device, wire.Head.LOGITS, features, self._agreed.logits(len(features)))
        if answer is None or answer.tensor is None:
            raise Away(f"{self._lines[device].name} is away")
        return answer.tensor.to(self._agreed.where)

    def count_own(self, device: int, batch: int, features: Tensor) -> int:
        """Let a device count how many of a batch of its own test samples are right."""
        answer, _ = self._through_head(device, wire.Head.COUNT, features, None, batch)
        if answer is None or not isinstance(answer.answer, wire.Judged):
            raise Away(f"{self._lines[device].name} is away")
        return min(max(answer.answer.right, 0), len(features))

    def _through_head(
        self, device: int, what: wire.Head.What, features: Tensor, expected: Expected | None, batch: int = 0
    ) -> tuple[Answered | None, int]:
        """Send features to a head; return its answer, None if the device has gone, and the bytes sent."""
        codec = self._agreed.activations if what == wire.Head.LOSS else wire.PLAIN
        header, payload = describe(features, codec, self._agreed.compression)
        message = wire.ToDevice(head=wire.Head(what=what, batch=batch, features=header))
        return self.post.consulted(device, message, Due("judged", (), expected), payload), header.bytes

    def drifts(self) -> Mapping[int, float]:
        """Ask the devices how far their halves are from their start."""
        return {device: status.drift for device, status in self._statuses()}

    def digests(self) -> Mapping[int, str]:
        """Ask the devices for the SHA-256 of their halves."""
        back = self.post.gone_back.devices  # their state is older than the last record
        return {device: status.sha256 for device, status in self._statuses() if device not in back}

    def save(self, folder: Path, round: int) -> None:
        """Let the devices store their state, where they are."""
        if round == 0:  # anybody can go back to the start
            return
        stored = wire.Stored(round=round, generation=self._memory.lineage.current)
        # A device that has gone back since the last record keeps what it went back to.
        current = [device for device in self._lines if device not in self.post.gone_back.devices]
        for event in self.post.asked(current, wire.ToDevice(save=wire.Save(round=round)), Due("done")):
            ready = self._lines[event.session.device].ready
            assert ready is not None
            ready.stored.append(stored)

    def stored(self, round: int) -> None:
        """Write down that there is a checkpoint, to notice if it is lost."""
        if round:
            self._memory.has_stored(round)

    def happened(self) -> FleetEvents:
        """Return who was missing, and who went back to an earlier state of its own."""
        absent: dict[int, tuple[int, ...]] = {}
        for turn, device in self._absent:
            absent[device] = (*absent.get(device, ()), turn)
        self._absent = []
        back = {f"restored_{when}": who for when, who in self.post.went_back().items()}
        return FleetEvents(absent=absent, **back)

    def _evaluated(
        self, what: wire.Evaluate.Set, device: int, whose: Whose
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        lent = whose != device
        if lent:
            self._share({whose: 1.0} if isinstance(whose, int) else whose, lend=device)
        while not any(line.session is not None for line in self._lines.values()):
            self.post.next()
        ready = self._lines[device].ready
        if ready is None:  # it has not come back since the server was started again
            raise Away(f"{self._lines[device].name} is away")
        size = ready.test_samples if what == wire.Evaluate.OWN else self._sizes[what]
        labels = self._agreed.labels if what == wire.Evaluate.OWN and not self.headed else range(0)
        given = self._sets[what]() if what in self._sets else None
        rows = self._agreed.evaluation_rows
        # How many of its own there are is the device's word: under a deadline there is an end to them, too.
        limited = what == wire.Evaluate.OWN and not self._closing.waits
        until = time.monotonic() + OWN_TESTS * max(self._closing.seconds, SLOW) if limited else math.inf
        for batch, first in enumerate(range(0, max(size, 1), rows)):
            evaluate = wire.Evaluate(set=what, batch=batch, shared=lent)
            payload: Sequence[memoryview] = ()
            if given is not None:
                inputs = next(given)
                if (what, batch) not in self._lines[device].has:
                    header, payload = describe(inputs, wire.PLAIN)
                    evaluate.inputs.CopyFrom(header)
            due = Due("scored", (batch,), self._agreed.scored(min(rows, size - first)), labels)
            message = wire.ToDevice(evaluate=evaluate)
            answers = list(self.post.asked([device], message, due, payload=payload, wait=lent))
            if not answers:
                raise Away(f"{self._lines[device].name} is away")
            self._lines[device].has.add((what, batch))
            assert answers[0].tensor is not None
            yield self._agreed.placed(answers[0].tensor), answers[0].labels
            if time.monotonic() > until:
                self._tell(f"{self._lines[device].name} is tested with the first {batch + 1} batches alone")
                return

    def _statuses(self) -> list[tuple[int, wire.Status]]:
        answers = self.post.asked(self._lines, wire.ToDevice(ask=wire.Ask()), Due("status"))
        found = {event.session.device: event.answer for event in answers}
        return [
            (device, status) for device, status in sorted(found.items()) if isinstance(status, wire.Status)
        ]

    def _share(
        self, weights: Mapping[int, float], *, keep: Collection[int] = (), lend: int | None = None
    ) -> None:
        """Let devices average halves."""
        self._transfers += 1
        name = f"{self._memory.lineage.current:x}-{self.post.round}-{self._transfers}"
        taking_part = sorted({*weights, *keep, *(() if lend is None else (lend,))})
        for device in taking_part:
            share = wire.Share(
                transfer=name, weights=weights, fetch=device in keep or device == lend, keep=device in keep
            )
            self._lines[device].ask(wire.ToDevice(share=share), Due("done"))
        for _ in self.post.answers(taking_part):
            pass

    def _upload(self, event: Answered) -> Upload:
        assert isinstance(event.answer, wire.Upload)
        assert event.tensor is not None
        device, answer = event.session.device, event.answer
        self._lines[device].turn = answer.turn
        labels = event.labels if event.labels is not None else torch.zeros(0, dtype=torch.int64)
        activations, labels = self._agreed.placed(event.tensor), labels.to(self._agreed.where)
        return Upload.unpack(device, answer.round, answer.turn, activations, labels, self._agreed.probes)
