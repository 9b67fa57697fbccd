"""A process with some of the devices, and the server's passes for them."""

from __future__ import annotations

import ctypes
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gapsl.device.device import Device
from gapsl.device.exchange import Reply, Upload
from gapsl.fleets.base import Split, probabilities
from gapsl.fleets.local import load, save
from gapsl.methods.base import Strategy
from gapsl.methods.server_model import Contribution, Halfway, Regulariser, ServerModel

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent dies


Allocate = Callable[[Sequence[Tensor]], list[Tensor]]


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


@dataclass(frozen=True)
class Layout:
    """How a tensor lies at the beginning of a row of memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @staticmethod
    def write(tensor: Tensor, row: Tensor) -> Layout:
        """Copy a tensor into a row, in its own order."""
        layout = Layout(tuple(tensor.shape), torch.empty_like(tensor, device="meta").stride())
        layout.read(row).copy_(tensor)
        return layout

    def read(self, row: Tensor) -> Tensor:
        """Return a view of the tensor in a row."""
        return row.as_strided(self.shape, self.stride, row.storage_offset())


@dataclass(frozen=True)
class Computed:
    """What a process says of a device's upload and the passes for it; the tensors are in the memory."""

    device: int
    place: int
    rows: Layout
    probes: int
    loss: float
    statistics: Sequence[tuple[Any, Any]]  # as arrays
    last: Any = None  # of a pass that waits halfway: the gradient at the logits, an array
    returned: Layout | None = None  # of a whole one, and the rest
    length: float = 0.0
    finite: bool = False


@dataclass(frozen=True)
class Answered:
    """What a process is told of a reply to a device; the tensor is in the memory."""

    device: int
    place: int
    rows: Layout | None  # none: nothing is to be learned
    probes: int


@dataclass(frozen=True)
class Memory:
    """What processes share besides weights: a row for each device of an exchange."""

    rows: Tensor  # (P, d), the gradients
    leader: Tensor  # (d,)
    uploads: Tensor  # (P, ·), activations
    replies: Tensor  # (P, ·), their gradients
    labels: Tensor  # (P, b)

    @staticmethod
    def laid_out(
        server: ServerModel, devices: Mapping[int, Device], places: int, allocate: Allocate
    ) -> Memory:
        """Return memory for so many devices of a kind."""
        device = next(iter(devices.values()))
        inputs, labels = device.batches.draw(1)
        device.batches.drawn -= 1
        with torch.no_grad():
            one = device.half.model.eval()(device.placed(inputs[:1]))
        batch = len(labels) + (0 if device.probes is None else device.probes.per_batch)
        weights = server.half.parameters[0].detach()
        cut = one.new_empty(places, batch * one.numel(), device="meta")
        return Memory(
            *allocate(
                [
                    weights.new_empty(places, server.half.size, device="meta"),
                    weights.new_empty(server.half.size, device="meta"),
                    cut,
                    cut,
                    labels.new_empty(places, len(labels), device="meta"),
                ]
            )
        )

    def put(self, place: int, found: Contribution | Halfway) -> Computed:
        """Put what was computed for an upload into the memory; its gradient is there."""
        upload = found.upload
        packed, _ = upload.pack()
        self.labels[place].copy_(upload.labels)
        said = Computed(
            upload.device,
            place,
            Layout.write(packed, self.uploads[place]),
            0 if upload.probes is None else len(upload.probes),
            found.loss,
            [(mean.numpy(), variance.numpy()) for mean, variance in found.statistics],
        )
        if isinstance(found, Halfway):
            return replace(said, last=found.last.numpy())
        returned = Layout.write(found.activation_gradient, self.replies[place])
        return replace(said, returned=returned, length=found.length, finite=found.finite)

    def get(self, said: Computed, round: int, turn: int) -> Contribution | Halfway:
        """Return what was computed for an upload, as views of the memory."""
        rows = said.rows.read(self.uploads[said.place])
        upload = Upload.unpack(said.device, round, turn, rows, self.labels[said.place], said.probes)
        statistics = [(writable(mean), writable(variance)) for mean, variance in said.statistics]
        if said.returned is None:
            last = writable(said.last)
            return Halfway(upload, said.loss, last, statistics, None, upload.activations)
        returned = said.returned.read(self.replies[said.place])
        gradient = self.rows[said.place]
        return Contribution(upload, said.loss, gradient, returned, statistics, said.length, said.finite)

    def put_reply(self, device: int, place: int, reply: Reply) -> Answered:
        """Put a reply into the memory."""
        if not reply.step:
            return Answered(device, place, None, 0)
        probes = 0 if reply.pull is None else len(reply.pull)
        return Answered(device, place, Layout.write(reply.pack(), self.replies[place]), probes)

    def reply(self, said: Answered) -> Reply:
        """Return a reply, as a view of the memory."""
        if said.rows is None:
            return Reply(self.replies[said.place][:0], step=False)
        return Reply.unpack(said.rows.read(self.replies[said.place]), True, said.probes)


def writable(array: Any) -> Tensor:
    """Return a tensor of an array that may be read-only."""
    return torch.from_numpy(array.copy())


@dataclass
class Worker:
    """Some of the devices, with the server's passes for them."""

    devices: Mapping[int, Device]
    sets: Mapping[Split, Callable[[], Iterator[Tensor]]]
    strategy: Strategy
    _last: dict[int, Contribution | Halfway] = field(default_factory=dict)  # for further passes
    _own: dict[ServerModel, ServerModel] = field(default_factory=dict)  # copies whose weights may be moved

    def begin(self) -> None:
        """Compute here from now on, in one thread."""
        torch.set_num_threads(1)
        for passes in {self.strategy.server, *(self.strategy.passes(id) for id in self.devices)}:
            passes.elsewhere = None

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

    def deliver(self, memory: Memory, round: int, replies: Sequence[Answered]) -> Iterator[None]:
        """Run devices back from the cut; nobody waits for it."""
        for said in replies:
            self.devices[said.device].backward(round, memory.reply(said))
        yield from ()

    def evaluate(self, memory: Memory, split: Split, count: int) -> Iterator[tuple[int, Any]]:
        """Run an evaluation set through every device's model and the server's."""
        server = self.strategy.server_model()
        for id, device in self.devices.items():
            found = probabilities(server, device.activations(self.sets[split]()), count)
            yield id, found.numpy()

    def save(self, memory: Memory, folder: Path) -> Iterator[None]:
        """Write a file for each device."""
        save(self.devices, folder)
        yield

    def load(self, memory: Memory, folder: Path) -> Iterator[None]:
        """Read the file of each device."""
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
        mine.half.model.load_state_dict(passes.half.model.state_dict())
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
