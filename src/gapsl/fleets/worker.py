"""A process with some of the devices, and the server's passes for them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gapsl.common.clock import Clock, timed
from gapsl.device.device import Device
from gapsl.fleets.base import EvaluationInputs, Split, probabilities
from gapsl.fleets.local import load, save
from gapsl.fleets.memory import Memory, writable
from gapsl.fleets.messages import (
    Answer,
    Computed,
    FetchedTensor,
    Job,
    Layout,
    Proposed,
    Regularised,
    ReplyMessage,
    Summed,
    Value,
)
from gapsl.fleets.remote_tensor import TensorName, divided
from gapsl.methods.base import Strategy
from gapsl.methods.contribution import Contribution, Halfway, Regulariser
from gapsl.methods.server_model import ServerModel
from gapsl.methods.sketched import SketchedServerModel

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent dies


@dataclass
class Worker:
    """Some of the devices, with the server's passes for them."""

    devices: Mapping[int, Device]
    sets: Mapping[Split, EvaluationInputs]
    strategy: Strategy
    number: int = 0  # where its sums go in the memory
    _last: dict[int, Contribution | Halfway] = field(default_factory=dict)  # for further passes
    # What is at the cut, until the next exchange.
    _kept: dict[tuple[TensorName, int], Tensor] = field(default_factory=dict)
    _replies: dict[int, Tensor] = field(default_factory=dict)  # gradients that will be delivered
    _own: dict[ServerModel, ServerModel] = field(default_factory=dict)  # copies whose weights may be moved

    def begin(self) -> None:
        """Compute here from now on, in one thread."""
        torch.set_num_threads(1)
        self._clock.take()
        for passes in {self.strategy.server, *(self.strategy.passes(id) for id in self.devices)}:
            passes.elsewhere = None
            if isinstance(passes, SketchedServerModel):  # what it adds up are parts of a sum over all devices
                first, last = min(self.devices), max(self.devices)
                passes.after, passes.before = first - 1 if first else None, last + 1

    def do(self, job: Job, memory: Memory) -> Iterator[Any]:
        """Do what is asked."""
        found: Iterator[Any] = getattr(self, job.name)(memory, job.asked, *job.common)
        return found

    def collect(
        self,
        memory: Memory,
        asked: Sequence[tuple[int, int]],
        round: int,
        turn: int,
        learn: bool,
        state: Mapping[str, Any],
    ) -> Iterator[Computed]:
        """Run devices to the cut, and the server's passes for them."""
        self.strategy.load_passes_state(state)
        self._last.clear()
        self._kept.clear()
        self.strategy.server.begin()
        for id, place in asked:
            with timed(self._clock.of(id), "forward"):
                upload = self.devices[id].forward(round, turn, learn=learn)
            self._kept["activations", id], self._kept["labels", id] = upload.activations, upload.labels
            self._last[id] = self.strategy.beside(upload, memory.rows[place])
            yield self._result(memory, place, self._last[id])

    def propose(
        self, memory: Memory, asked: Sequence[tuple[int, int]], round: int, turn: int
    ) -> Iterator[Proposed]:
        """Let devices say what a step along their gradient would do to the probes."""
        for id, place in asked:
            with timed(self._clock.of(id), "forward"):
                upload = self.devices[id].propose(round, turn)
            yield replace(memory.put_proposal(place, upload), seconds=self._clock.take())

    def backwards(self, memory: Memory, asked: Sequence[tuple[int, int, float, Any]]) -> Iterator[Computed]:
        """Run passes back that have waited halfway, from the gradients at the logits that come."""
        for id, place, loss, last in asked:
            waited = self._last[id]
            assert isinstance(waited, Halfway)
            passes = self.strategy.passes(id)
            found = passes.backward(replace(waited, loss=loss), writable(last), memory.rows[place])
            yield self._result(memory, place, found)

    def _result(self, memory: Memory, place: int, found: Contribution | Halfway) -> Computed:
        if isinstance(found, Contribution):
            self._kept["gradient", found.device] = found.activation_gradient
        return replace(memory.put(place, found), seconds=self._clock.take())

    def fetch(
        self, memory: Memory, asked: Sequence[tuple[int, int]], what: TensorName
    ) -> Iterator[FetchedTensor]:
        """Put what is kept at the cut into the memory."""
        for id, place in asked:
            found = self._kept.get((what, id))
            yield FetchedTensor(
                id, place, what, None if found is None else Layout.write(found, memory.at_cut(what)[place])
            )

    def regularise(
        self, memory: Memory, asked: Sequence[tuple[int, int, bool]], how: Regulariser, name: TensorName
    ) -> Iterator[Regularised]:
        """Add the derivatives of devices' regularisers to their gradients in the memory.

        Where the gradients that count are others, the derivative takes their place there.
        """
        for id, place, here in asked:
            passes = self._movable(id) if how.mode == "finite" else self.strategy.passes(id)
            found = self._last[id]
            assert isinstance(found, Contribution)
            on_weights, returned = passes.regularised(found, memory.leader, how)
            if on_weights is not None and here:
                memory.rows[place].add_(on_weights, alpha=how.weight)
            elif on_weights is not None:
                memory.rows[place].copy_(on_weights)
            if returned is not None:
                self._kept[name, id] = returned
            apart = on_weights is not None and not here
            yield Regularised(id, place, returned is not None, apart, seconds=self._clock.take())

    def branches(
        self,
        memory: Memory,
        asked: Sequence[tuple[int, int, float]],
        towards: bool,
        how: Regulariser | None,
        name: TensorName,
    ) -> Iterator[Summed]:
        """Add up devices' gradients, and the derivatives of their regularisers towards the leader, if so."""
        passes = self.strategy.server
        if towards and how is not None and how.mode == "finite":
            passes = self._movable(asked[0][0])
        assert isinstance(passes, SketchedServerModel)
        found = [one for id, *_ in asked if isinstance(one := self._last[id], Contribution)]
        leader = memory.leader if towards else None
        branches, returned = passes.branches(found, [weight for *_, weight in asked], leader, how)
        added = {id: one for (id, *_), one in zip(asked, returned, strict=True) if one is not None}
        if towards:
            self._kept.update({(name, id): one for id, one in added.items()})
        devices = memory.put_branches(self.number, branches)
        yield Summed(asked[0][0], self.number, devices, tuple(added), seconds=self._clock.take())

    def lengths(
        self, memory: Memory, asked: Sequence[tuple[int, int, TensorName, float | None]]
    ) -> Iterator[Value]:
        """Measure gradients that will be delivered."""
        for id, place, what, divisor in asked:
            self._replies[id] = divided(self._kept[what, id], divisor)
            yield Value(id, place, float(self._replies[id].norm()))

    def deliver(
        self, memory: Memory, asked: Sequence[tuple[int, int, ReplyMessage]], round: int
    ) -> Iterator[None]:
        """Run devices back from the cut; nobody waits for it."""
        for id, place, said in asked:
            own = self._replies.pop(id) if said.own else None
            with timed(self._clock.of(id), "backward"):
                self.devices[id].backward(round, memory.reply(place, said, own))
        yield from ()

    def evaluate(
        self, memory: Memory, asked: Sequence[tuple[int, int]], split: Split, count: int
    ) -> Iterator[Value]:
        """Run an evaluation set through devices' models and the server's."""
        server = self.strategy.server_model()
        for id, place in asked:
            found = probabilities(server, self.devices[id].activations(self.sets[split]()), count)
            yield Value(id, place, found.numpy())

    def save(self, memory: Memory, asked: Sequence[Any], folder: Path) -> Iterator[None]:
        """Write the devices' states."""
        save(self.devices, folder)
        yield

    def load(self, memory: Memory, asked: Sequence[Any], folder: Path) -> Iterator[None]:
        """Read the devices' states."""
        load(self.devices, folder)
        yield

    def settle(self, memory: Memory, asked: Sequence[Any]) -> Iterator[None]:
        """Say that all is done that came before."""
        yield

    @property
    def _clock(self) -> Clock:
        """What devices and passes took here, until somebody is told."""
        return self.strategy.server.clock

    def _movable(self, id: int) -> ServerModel:
        """Return passes over weights of this process's own, the same as the shared ones."""
        passes = self.strategy.passes(id)
        if passes not in self._own:
            self._own[passes] = passes.copy()
        mine = self._own[passes]
        mine.part.model.load_state_dict(passes.part.model.state_dict())
        return mine


def serve(
    worker: Worker, memory: Memory, pipe: Connection, inherited: Sequence[Connection], parent: int
) -> None:
    """Do what is asked until the pipe is closed or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        return
    for other in inherited:
        other.close()
    worker.begin()
    with suppress(EOFError, OSError):  # the parent has closed it
        while True:
            job: Job = pipe.recv()
            try:
                for value in worker.do(job, memory):
                    pipe.send(Answer(value))
            except OSError:
                raise
            except Exception as error:
                pipe.send(Answer(error=error))
