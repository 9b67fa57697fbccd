"""What workers and the server have in common besides weights: a row of memory for each device of a round.

Processes share it: anonymous memory, which has no name to leak and ends with the last of them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.device.device import Device
from gapsl.device.exchange import Reply, Upload
from gapsl.fleets.messages import Computed, Layout, Proposed, ReplyMessage, dense_strides
from gapsl.fleets.remote_tensor import Fetch, RemoteTensor, TensorName, own
from gapsl.methods.contribution import Branches, Contribution, Halfway
from gapsl.methods.server_model import ServerModel
from gapsl.methods.sketched import SketchedServerModel

ALIGNED = 64  # bytes; where vector instructions like tensors to begin

Allocate = Callable[[Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class Memory:
    """What processes share besides weights: a row for each device of an exchange."""

    rows: Tensor  # (P, d), the gradients, or (P, k), their sketches
    leader: Tensor  # (d,)
    cut: Tensor  # (P, ·), activations or their gradients where they are asked for, and replies
    labels: Tensor  # (P, b)
    probes: Tensor  # (P, ·), what devices make of them
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
        probes = 0 if device.probes is None else device.probes.per_batch
        weights = server.part.parameters[0].detach()
        # A range of devices has so many branches at most in a binary tree over all of them.
        branches = 2 * max(devices).bit_length() + 1 if isinstance(server, SketchedServerModel) else 0
        return Memory(
            *allocate(
                [
                    weights.new_empty(places, server.row_size, device="meta"),
                    weights.new_empty(server.part.size, device="meta"),
                    one.new_empty(places, (len(labels) + probes) * one.numel(), device="meta"),
                    labels.new_empty(places, len(labels), device="meta"),
                    one.new_empty(places, probes * one.numel(), device="meta"),
                    weights.new_empty(workers, branches, server.part.size, device="meta"),
                ]
            )
        )

    def at_cut(self, what: TensorName) -> Tensor:
        """Return where a tensor at the cut goes that is asked for."""
        return self.labels if what == "labels" else self.cut

    def put(self, place: int, found: Contribution | Halfway) -> Computed:
        """Put what was computed for an upload into the memory; its gradient is there."""
        upload = found.upload
        probes = None if upload.probes is None else Layout.write(upload.probes, self.probes[place])
        said = Computed(
            upload.device,
            place,
            Layout.of(upload.activations),
            Layout.of(upload.labels),
            probes,
            found.loss,
            [(mean.numpy(), variance.numpy()) for mean, variance in found.statistics],
        )
        if isinstance(found, Halfway):
            return replace(said, last=found.last.numpy())
        return replace(said, whole=True, length=found.length, finite=found.finite)

    def get(self, said: Computed, round: int, turn: int, source: Fetch) -> Contribution | Halfway:
        """Return what was computed for an upload, as views of the memory; what was kept can be fetched."""

        def kept(what: TensorName, layout: Layout) -> Tensor:
            return RemoteTensor.of(layout.without_memory(self.at_cut(what).dtype), what, said.device, source)

        activations, labels = kept("activations", said.activations), kept("labels", said.labels)
        probes = None if said.probes is None else said.probes.read(self.probes[said.place])
        upload = Upload(said.device, round, turn, activations, labels, probes)
        statistics = [(writable(mean), writable(variance)) for mean, variance in said.statistics]
        if not said.whole:
            return Halfway(upload, said.loss, writable(said.last), statistics, None, activations)
        row, gradient = self.rows[said.place], kept("gradient", said.activations)
        return Contribution(upload, said.loss, row, gradient, statistics, said.length, said.finite)

    def put_proposal(self, place: int, upload: Upload) -> Proposed:
        """Put a device's proposal into the memory."""
        assert upload.probes is not None
        return Proposed(upload.device, place, Layout.write(upload.probes, self.probes[place]))

    def get_proposal(self, said: Proposed, round: int, turn: int) -> Upload:
        """Return a device's proposal; the memory is for the next."""
        found = said.layout.read(self.probes[said.place]).clone()
        return Upload(said.device, round, turn, found[:0], self.labels[said.place][:0], found)

    def put_branches(self, worker: int, branches: Branches) -> tuple[int, ...]:
        """Put the branches of a sum that a worker has added up into the memory; returns a device of each."""
        for row, (_, total) in zip(self.sums[worker], branches, strict=False):
            row.copy_(total)
        return tuple(device for device, _ in branches)

    def put_reply(self, device: int, place: int, reply: Reply) -> ReplyMessage:
        """Put into the memory what a device does not have of its reply."""
        if not reply.step:
            return ReplyMessage(False)
        gradient, pull = own(reply.gradient, device), reply.pull
        probes = 0 if pull is None else len(pull)
        if gradient is None:
            return ReplyMessage(True, False, Layout.write(reply.pack(), self.cut[place]), probes)
        rows = None if pull is None else Layout.write(pull, self.cut[place])
        return ReplyMessage(True, True, rows, probes)

    def reply(self, place: int, said: ReplyMessage, own: Tensor | None) -> Reply:
        """Return a reply, as a view of the memory, with the gradient that the worker has, if so."""
        rows = self.cut[place][:0] if said.rows is None else said.rows.read(self.cut[place])
        if own is not None:
            return Reply(own, pull=rows if said.probes else None)
        return Reply.unpack(rows, said.step, said.probes)


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


def share(model: nn.Module) -> None:
    """Move a model's weights and buffers to shared memory; whoever holds the model notices nothing."""
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, shared in zip(tensors, shared_like([t.detach() for t in tensors]), strict=True):
        tensor.data = shared.copy_(tensor.data)
