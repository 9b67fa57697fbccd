"""The fleet over the network: every device a process of its own, somewhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gapsl.common.clock import Clock, timed
from gapsl.device.exchange import DeviceInfo, Exchange, Reply, Upload
from gapsl.fleets.base import Away, EvaluationInputs, FleetEvents, Split, Traffic, Whose
from gapsl.models.part import all_finite
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.framing import TensorSpec
from gapsl.network.server.device_link import late
from gapsl.network.server.dispatcher import Dispatcher
from gapsl.network.server.session import Answered, ExpectedAnswer

OWN_TESTS = 12  # times what a batch has under a deadline: for all of a device's own test samples
CPU = torch.device("cpu")
SETS = {"test": wire.Evaluate.TEST, "validation": wire.Evaluate.VALIDATION}


class RemoteFleet:
    """Devices behind their links: what the run asks for becomes commands and their answers."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        merges: bool,
        model_bytes: int = 0,
        sizes: Mapping[wire.Evaluate.Set, int] | None = None,
        sets: Mapping[wire.Evaluate.Set, EvaluationInputs] | None = None,
        where: torch.device = CPU,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.dispatcher, self._contract, self._links = dispatcher, dispatcher.contract, dispatcher.links
        self.merges, self._model_bytes = merges, model_bytes
        # Evaluation sets that devices with their own data do not have, and the sizes of all common ones.
        self.own_tests, self._sets, self._sizes = sets is not None, sets or {}, sizes or {}
        self._where, self._layout = where, layout
        self.traffic = Traffic(dict.fromkeys(self._links, 0), dict.fromkeys(self._links, 0))
        dispatcher.uploaded = lambda device, size: self.traffic.add(device, sent=size)
        self.clock = Clock()
        self._transfers = 0
        self._proposals: int | None = None  # the turn in which devices propose, if they do

    @property
    def devices(self) -> Mapping[int, DeviceInfo]:
        """What devices said of their data."""
        return self.dispatcher.state.devices

    def newest_common_checkpoint(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's rounds that everybody has who is waited for."""
        return self.dispatcher.newest_common_checkpoint(rounds)

    def load(self, folder: Path, round: int) -> None:
        """Let every device begin from what it stored after a round, or from the last one before it."""
        self._transfers = 0
        self.dispatcher.begin(round)

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Ask devices for their activations, and yield them as they arrive."""
        asked = wire.Forward(
            round=round, turn=exchange.turn, learn=exchange.learn, proposes=exchange.proposes
        )
        forward = wire.ToDevice(forward=asked)
        labels = self._contract.labels
        probes = self._contract.probes if labels else 0
        tensor = self._contract.proposal() if exchange.proposes else self._contract.upload()
        self._proposals = exchange.turn if exchange.proposes else None
        due = ExpectedAnswer("upload", (round, exchange.turn), tensor, labels, probes)
        for event in self.dispatcher.exchange(exchange.devices, forward, due):
            device = event.session.device
            self._links[device].turn = exchange.turn
            if not exchange.learn:
                self._reply(device, wire.Backward(round=round, turn=exchange.turn))
            assert event.tensor is not None
            self._clocked(event)
            activations, own = self._placed(event.tensor), labels_of(event).to(self._where)
            yield Upload.unpack(device, round, exchange.turn, activations, own, self._contract.probes)

    def _clocked(self, event: Answered) -> None:
        """Note how long a device took; its own word counts as far as the server's clock allows."""
        link, said = self._links[event.session.device], event.answer
        assert isinstance(said, wire.Upload)
        waited, since = event.at - link.asked, event.at - link.uploaded
        forward, backward = within(said.forward_seconds, waited), within(said.backward_seconds, since)
        waiting = max(0.0, waited - forward - backward)
        link.uploaded = event.at
        self.clock.add(event.session.device, {"forward": forward, "backward": backward, "waiting": waiting})

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Send each device its gradient."""
        for device, reply in sorted(replies.items()):
            link = self._links[device]
            if (link.turn, device) in self.dispatcher.absent:  # it has gone before its loss was known
                link.inform(late(round, link.turn))
                continue
            header, data = describe(reply.pack(), self._contract.gradients, self._contract.compression)
            self.traffic.add(device, received=header.bytes)
            backward = wire.Backward(round=round, turn=link.turn, step=reply.step, gradient=header)
            if device not in self.dispatcher.restarted:
                self._reply(device, backward, data)

    def _reply(self, device: int, backward: wire.Backward, data: Sequence[memoryview] = ()) -> None:
        """Answer an upload, so that the device knows that it counts; without a gradient it learns nothing."""
        reply = self._links[device].reply = (wire.ToDevice(backward=backward), data)
        self._links[device].inform(*reply)

    def dropped(self) -> Collection[int]:
        """Return the devices that this round has lost; a proposal is no more than its part of the step."""
        return {device for turn, device in self.dispatcher.absent if turn != self._proposals}

    def average(self, weights: Mapping[int, float]) -> None:
        """Let the devices average their client-side models at the parameter server."""
        self.dispatcher.rollbacks.averaging()
        self._share(weights, keep=self._links)
        for device in self._links:
            sent = self._model_bytes if device in weights else 0
            self.traffic.add(device, sent=sent, received=self._model_bytes)

    def hand_over(self, source: int, target: int) -> None:
        """Let a device pass its client-side model on, through the parameter server."""
        self._share({source: 1.0}, keep=[target])
        self.traffic.add(source, sent=self._model_bytes)
        self.traffic.add(target, received=self._model_bytes)

    def evaluate(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Let a device run an evaluation set to the cut, batch by batch."""
        device = whose if isinstance(whose, int) else min(whose)
        return (activations for activations, _ in self._evaluated(SETS[split], device, whose))

    def evaluate_own(self, device: int, whose: Whose) -> Iterator[tuple[Tensor, Tensor]]:
        """Let a device run its own test samples to the cut, batch by batch."""
        return self._evaluated(wire.Evaluate.OWN, device, whose)

    @property
    def label_private(self) -> bool:
        """Whether devices have the last layer."""
        return bool(self._contract.features)

    def head_loss(self, device: int, features: Tensor) -> tuple[float, Tensor]:
        """Let a device's head compute the loss of its mini-batch; not a number if it has gone."""
        if not all_finite(features):  # the loss would not be, and not every codec can write it
            return math.nan, torch.zeros_like(features)
        answer, asked = None, 0
        expected = self._contract.head_derivative(len(features))
        if device not in self.dispatcher.restarted:  # else it does not know its mini-batch any more
            with timed(self.clock.of(device), "waiting"):
                answer, asked = self._through_head(device, wire.Head.LOSS, features, expected)
        if answer is None or answer.tensor is None:
            self.dispatcher.absent.append((self._links[device].turn, device))
            return math.nan, torch.zeros_like(features)
        assert isinstance(answer.answer, wire.Judged)
        self.traffic.add(device, sent=answer.answer.tensor.bytes, received=asked)
        return answer.answer.loss, answer.tensor.to(self._where)

    def head_logits(self, device: int, features: Tensor) -> Tensor:
        """Let a device's head compute the logits of an evaluation batch."""
        answer, _ = self._through_head(
            device, wire.Head.LOGITS, features, self._contract.head_logits(len(features))
        )
        if answer is None or answer.tensor is None:
            raise self._away(device)
        return answer.tensor.to(self._where)

    def head_correct(self, device: int, batch: int, features: Tensor) -> int:
        """Let a device count how many of a batch of its own test samples are right."""
        answer, _ = self._through_head(device, wire.Head.COUNT, features, None, batch)
        if answer is None or not isinstance(answer.answer, wire.Judged):
            raise self._away(device)
        return min(max(answer.answer.right, 0), len(features))

    def _through_head(
        self, device: int, what: wire.Head.What, features: Tensor, expected: TensorSpec | None, batch: int = 0
    ) -> tuple[Answered | None, int]:
        """Return a head's answer to features, None if the device has gone, and the bytes sent."""
        header, payload = describe(features, self._contract.head_codec(what), self._contract.compression)
        message = wire.ToDevice(head=wire.Head(what=what, batch=batch, features=header))
        answers = self.dispatcher.ask([device], message, ExpectedAnswer("judged", (), expected), payload)
        return answers[0] if answers else None, header.bytes

    def drifts(self) -> Mapping[int, float]:
        """Ask the devices how far their client-side models are from their start."""
        return {device: status.drift for device, status in self._statuses()}

    def digests(self) -> Mapping[int, str]:
        """Ask the devices for the SHA-256 of their client-side models."""
        back = self.dispatcher.rollbacks.devices  # their state is older than the last record
        return {device: status.sha256 for device, status in self._statuses() if device not in back}

    def save(self, folder: Path, round: int) -> None:
        """Let the devices store their state, where they are."""
        if round == 0:  # anybody can go back to the start
            return
        stored = wire.Stored(round=round, generation=self.dispatcher.state.generations.current)
        # A device that has gone back since the last record keeps what it went back to.
        current = [device for device in self._links if device not in self.dispatcher.rollbacks.devices]
        save = wire.ToDevice(save=wire.Save(round=round))
        for event in self.dispatcher.ask(current, save, ExpectedAnswer("done")):
            ready = self._links[event.session.device].ready
            assert ready is not None
            ready.stored.append(stored)
            self.dispatcher.state.saved(event.session.device, round)

    def checkpoint_written(self, round: int) -> None:
        """Write down that there is a checkpoint, to notice if it is lost."""
        if round:
            self.dispatcher.state.checkpoint_written(round)

    def drain_events(self) -> FleetEvents:
        """Return who was missing, and who went back to an earlier state of its own."""
        missing, back = self.dispatcher.drain()
        absent: dict[int, tuple[int, ...]] = {}
        for turn, device in missing:
            absent[device] = (*absent.get(device, ()), turn)
        return FleetEvents(absent=absent, **{f"restored_{when}": who for when, who in back.items()})

    def _evaluated(
        self, what: wire.Evaluate.Set, device: int, whose: Whose
    ) -> Iterator[tuple[Tensor, Tensor]]:
        link, policy, rows = self._links[device], self.dispatcher.policy, self._contract.evaluation_rows
        lent, own = whose != device, what == wire.Evaluate.OWN
        if lent:
            self._share({whose: 1.0} if isinstance(whose, int) else whose, lend=device)
        self.dispatcher.wait(lambda: any(other.session is not None for other in self._links.values()))
        if link.ready is None:  # it has not come back since the server was started again
            raise self._away(device)
        size = link.ready.test_samples if own else self._sizes[what]
        labels = self._contract.labels if own else range(0)
        given = self._sets[what]() if what in self._sets else None
        # How many of its own there are is the device's word: under a deadline there is an end to them, too.
        limited = own and not policy.waits_for_all
        seconds = policy.answer_seconds(self.dispatcher.pace.usual)
        until = time.monotonic() + OWN_TESTS * seconds if limited else math.inf
        for batch, first in enumerate(range(0, max(size, 1), rows)):
            evaluate = wire.Evaluate(set=what, batch=batch, shared=lent)
            payload: Sequence[memoryview] = ()
            if given is not None:
                inputs = next(given)
                if (what, batch) not in link.has:
                    header, payload = describe(inputs, wire.PLAIN)
                    evaluate.inputs.CopyFrom(header)
            due = ExpectedAnswer("scored", (batch,), self._contract.scored(min(rows, size - first)), labels)
            message = wire.ToDevice(evaluate=evaluate)
            answers = self.dispatcher.ask([device], message, due, payload, needed=lent)
            if not answers or answers[0].tensor is None:
                raise self._away(device)
            link.has.add((what, batch))
            yield self._placed(answers[0].tensor), labels_of(answers[0])
            if time.monotonic() > until:
                self.dispatcher.tell(f"{link.name} is tested with the first {batch + 1} batches alone")
                return

    def _away(self, device: int) -> Away:
        return Away(f"{self._links[device].name} is away")

    def _statuses(self) -> list[tuple[int, wire.Status]]:
        answers = self.dispatcher.ask(self._links, wire.ToDevice(ask=wire.Ask()), ExpectedAnswer("status"))
        return [(a.session.device, a.answer) for a in answers if isinstance(a.answer, wire.Status)]

    def _share(
        self, weights: Mapping[int, float], *, keep: Collection[int] = (), lend: int | None = None
    ) -> None:
        """Let devices average client-side models."""
        self._transfers += 1
        name = f"{self.dispatcher.state.generations.current:x}-{self.dispatcher.round}-{self._transfers}"

        def share(device: int) -> wire.ToDevice:
            kept, fetched = device in keep, device in keep or device == lend
            return wire.ToDevice(share=wire.Share(transfer=name, weights=weights, fetch=fetched, keep=kept))

        taking_part = sorted({*weights, *keep, *(() if lend is None else (lend,))})
        self.dispatcher.ask(taking_part, share, ExpectedAnswer("done"), needed=True)

    def _placed(self, tensor: Tensor) -> Tensor:
        """Return what arrived where the server computes, in its memory order."""
        tensor = tensor.to(self._where)
        return tensor.contiguous(memory_format=self._layout) if tensor.dim() == 4 else tensor


def labels_of(event: Answered) -> Tensor:
    """Return the labels of an answer, none where they stay with the devices."""
    return torch.zeros(0, dtype=torch.int64) if event.labels is None else event.labels


def within(word: float, most: float) -> float:
    """Return the seconds that a device says it took, none if it cannot have."""
    return word if 0 <= word <= most else 0.0
