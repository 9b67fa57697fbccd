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

from gapsl.device.device import Device
from gapsl.fleets.base import EvaluationInputs, Split, probabilities
from gapsl.fleets.local import load, save
from gapsl.fleets.memory import Answered, Computed, Layout, Memory, Summed, writable
from gapsl.methods.base import Strategy
from gapsl.methods.contribution import Contribution, Halfway, Regulariser
from gapsl.methods.server_model import ServerModel
from gapsl.methods.sketched import SketchedServerModel

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent dies


@dataclass(frozen=True)
class Job:
    """What a process is to do."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of it: a value, or why there is none."""

    value: Any = None
    error: Exception | None = None


@dataclass
class Worker:
    """Some of the devices, with the server's passes for them."""

    devices: Mapping[int, Device]
    sets: Mapping[Split, EvaluationInputs]
    strategy: Strategy
    _last: dict[int, Contribution | Halfway] = field(default_factory=dict)  # for further passes
    _own: dict[ServerModel, ServerModel] = field(default_factory=dict)  # copies whose weights may be moved

    def begin(self) -> None:
        """Compute here from now on, in one thread."""
        torch.set_num_threads(1)
        for passes in {self.strategy.server, *(self.strategy.passes(id) for id in self.devices)}:
            passes.elsewhere = None
            if isinstance(passes, SketchedServerModel):  # what it adds up are parts of a sum over all devices
                first, last = min(self.devices), max(self.devices)
                passes.after, passes.before = first - 1 if first else None, last + 1

    def collect(
        self,
        memory: Memory,
        round: int,
        turn: int,
        learn: bool,
        asked: Sequence[tuple[int, int]],
        state: Mapping[str, Any],
    ) -> Iterator[Computed]:
        """Run devices to the cut, and the server's passes for them."""
        self.strategy.load_passes_state(state)
        self._last.clear()
        self.strategy.server.begin()
        for id, place in asked:
            upload = self.devices[id].forward(round, turn, learn=learn)
            self._last[id] = self.strategy.beside(upload, memory.rows[place])
            yield memory.put(place, self._last[id])

    def backwards(self, memory: Memory, asked: Sequence[tuple[int, int, float, Any]]) -> Iterator[Computed]:
        """Run passes back that have waited halfway, from the gradients at the logits that come."""
        for id, place, loss, last in asked:
            waited = self._last[id]
            assert isinstance(waited, Halfway)
            passes = self.strategy.passes(id)
            found = passes.backward(replace(waited, loss=loss), writable(last), memory.rows[place])
            yield memory.put(place, found)

    def regularise(
        self, memory: Memory, how: Regulariser, asked: Sequence[tuple[int, int, bool]]
    ) -> Iterator[tuple[int, bool, bool]]:
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
                Layout.write(returned, memory.replies[place])
            yield id, returned is not None, on_weights is not None and not here

    def branches(
        self,
        memory: Memory,
        number: int,
        towards: bool,
        how: Regulariser | None,
        asked: Sequence[tuple[int, int, float]],
    ) -> Iterator[Summed]:
        """Add up devices' gradients, and the derivatives of their regularisers towards the leader, if so."""
        passes = self.strategy.server
        if towards and how is not None and how.mode == "finite":
            passes = self._movable(asked[0][0])
        assert isinstance(passes, SketchedServerModel)
        found = [one for id, *_ in asked if isinstance(one := self._last[id], Contribution)]
        leader = memory.leader if towards else None
        branches, returned = passes.branches(found, [weight for *_, weight in asked], leader, how)
        for (_, place, _), gradient in zip(asked, returned, strict=True):
            if towards and gradient is not None:
                Layout.write(gradient, memory.replies[place])
        added = tuple(id for (id, *_), one in zip(asked, returned, strict=True) if one is not None)
        yield Summed(number, memory.put_branches(number, branches), added)

    def deliver(self, memory: Memory, round: int, replies: Sequence[Answered]) -> Iterator[None]:
        """Run devices back from the cut; nobody waits for it."""
        for said in replies:
            self.devices[said.device].backward(round, memory.reply(said))
        yield from ()

    def evaluate(
        self, memory: Memory, split: Split, count: int, devices: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        """Run an evaluation set through devices' models and the server's."""
        server = self.strategy.server_model()
        for id in devices:
            found = probabilities(server, self.devices[id].activations(self.sets[split]()), count)
            yield id, found.numpy()

    def save(self, memory: Memory, folder: Path) -> Iterator[None]:
        """Write the devices' states."""
        save(self.devices, folder)
        yield

    def load(self, memory: Memory, folder: Path) -> Iterator[None]:
        """Read the devices' states."""
        load(self.devices, folder)
        yield

    def settle(self, memory: Memory) -> Iterator[None]:
        """Say that all is done that came before."""
        yield

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
                for value in getattr(worker, job.name)(memory, *job.arguments):
                    pipe.send(Answer(value))
            except OSError:
                raise
            except Exception as error:
                pipe.send(Answer(error=error))
