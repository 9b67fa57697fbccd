"""What workers and the server have in common besides weights: a row of memory for each device of a round.

Processes share it: anonymous memory, which has no name to leak and ends with the last of them.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.device.device import Device
from gapsl.device.exchange import Reply, Upload
from gapsl.methods.contribution import Branches, Contribution, Halfway
from gapsl.methods.server_model import ServerModel
from gapsl.methods.sketched import SketchedServerModel

ALIGNED = 64  # bytes; where vector instructions like tensors to begin

Allocate = Callable[[Sequence[Tensor]], list[Tensor]]


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
        layout = Layout(tuple(tensor.shape), dense_strides(tensor))
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
class Summed:
    """What a process says of a sum of gradients; its branches are in the memory."""

    worker: int
    devices: tuple[int, ...]  # one of each branch
    added: tuple[int, ...]  # the devices that are in it

    def branches(self, memory: Memory) -> Branches:
        """Return the branches, as views of the memory."""
        return list(zip(self.devices, memory.sums[self.worker], strict=False))


@dataclass(frozen=True)
class Memory:
    """What processes share besides weights: a row for each device of an exchange."""

    rows: Tensor  # (P, d), the gradients, or (P, k), their sketches
    leader: Tensor  # (d,)
    uploads: Tensor  # (P, ·), activations
    replies: Tensor  # (P, ·), their gradients
    labels: Tensor  # (P, b)
    sums: Tensor  # (W, ·, d), where rows are sketches: the branches of a sum that each worker adds up

    @staticmethod
    def laid_out(
        server: ServerModel, devices: Mapping[int, Device], places: int, workers: int, allocate: Allocate
    ) -> Memory:
        """Return memory for so many devices of a kind, and for so many workers."""
        device = next(iter(devices.values()))
        inputs, labels = device.batches.draw(1)
        device.batches.drawn -= 1
        with torch.no_grad():
            one = device.part.model.eval()(device.placed(inputs[:1]))
        batch = len(labels) + (0 if device.probes is None else device.probes.per_batch)
        weights = server.part.parameters[0].detach()
        # A range of devices has so many branches at most in a binary tree over all of them.
        branches = 2 * max(devices).bit_length() + 1 if isinstance(server, SketchedServerModel) else 0
        cut = one.new_empty(places, batch * one.numel(), device="meta")
        return Memory(
            *allocate(
                [
                    weights.new_empty(places, server.row_size, device="meta"),
                    weights.new_empty(server.part.size, device="meta"),
                    cut,
                    cut,
                    labels.new_empty(places, len(labels), device="meta"),
                    weights.new_empty(workers, branches, server.part.size, device="meta"),
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

    def put_branches(self, worker: int, branches: Branches) -> tuple[int, ...]:
        """Put the branches of a sum that a worker has added up into the memory; returns a device of each."""
        for row, (_, total) in zip(self.sums[worker], branches, strict=False):
            row.copy_(total)
        return tuple(device for device, _ in branches)

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


def shared_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of these shapes, types and orders in memory in one piece of shared memory, all zero."""
    sizes = [-(-max(1, t.nbytes) // ALIGNED) * ALIGNED for t in tensors]
    memory = mmap.mmap(-1, max(1, sum(sizes)))
    found: list[Tensor] = []
    start = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        # Not a view of one tensor for all: autograd takes a write to one view for a write to every other.
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=max(1, tensor.numel()), offset=start)
        found.append(flat.as_strided(tensor.shape, dense_strides(tensor)))
        start += size
    return found


def dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor in its own order, without gaps."""
    return torch.empty_like(tensor, device="meta").stride()


def share(model: nn.Module) -> None:
    """Move a model's weights and buffers to shared memory; whoever holds the model notices nothing."""
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, shared in zip(tensors, shared_like([t.detach() for t in tensors]), strict=True):
        tensor.data = shared.copy_(tensor.data)
