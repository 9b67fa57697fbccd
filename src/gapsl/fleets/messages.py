"""What the server's process and workers say to each other; what is large is in the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gapsl.fleets.remote_tensor import TensorName
from gapsl.methods.contribution import Branches

if TYPE_CHECKING:
    from gapsl.fleets.memory import Memory


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
    def of(tensor: Tensor) -> Layout:
        """Return how a tensor would lie there, in its own order."""
        return Layout(tuple(tensor.shape), dense_strides(tensor))

    @staticmethod
    def write(tensor: Tensor, row: Tensor) -> Layout:
        """Copy a tensor into a row."""
        layout = Layout.of(tensor)
        layout.read(row).copy_(tensor)
        return layout

    def read(self, row: Tensor) -> Tensor:
        """Return a view of the tensor in a row."""
        return row.as_strided(self.shape, self.stride, row.storage_offset())

    def without_memory(self, dtype: torch.dtype) -> Tensor:
        """Return a tensor that lies like this, and has no numbers."""
        return torch.empty_strided(self.shape, self.stride, dtype=dtype, device="meta")


@dataclass(frozen=True)
class Job:
    """What a worker is to do, for which devices: each with its place in the memory and what else it takes."""

    name: str
    asked: Sequence[tuple[Any, ...]] = ()
    common: tuple[Any, ...] = ()

    def crossing(self, memory: Memory) -> list[Tensor]:
        """Return what of it is in the memory: this has to be sent along where the memory is not shared."""
        if self.name == "deliver":
            return [memory.cut[place][: said.numel] for _, place, said in self.asked]
        towards = self.name == "regularise" or (self.name == "branches" and self.common[0])
        return [memory.leader] if towards else []

    def placed(self, place: Callable[[int], int]) -> Job:
        """Return the same for a memory in which devices have other places."""
        return replace(self, asked=[(id, place(id), *rest) for id, _, *rest in self.asked])


@dataclass(frozen=True)
class Answer:
    """What came of it: a value, or why there is none."""

    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class WorkerResult:
    """What a worker says of a device; what is large is in the memory, at this place."""

    device: int
    place: int
    # By device and phase, what was counted since somebody was last told.
    seconds: Mapping[int, Mapping[str, float]] = field(default_factory=dict, kw_only=True)

    def crossing(self, memory: Memory) -> list[Tensor]:
        """Return where it is in the memory: this has to be sent along where the memory is not shared."""
        return []


@dataclass(frozen=True)
class Computed(WorkerResult):
    """Of a device's upload and the passes for it; what is at the cut stays with the worker."""

    activations: Layout
    labels: Layout
    probes: Layout | None
    loss: float
    statistics: Sequence[tuple[Any, Any]]  # as arrays
    last: Any = None  # of a pass that waits halfway: the gradient at the logits, an array
    whole: bool = False  # whether it does not, and there is the rest
    length: float = 0.0
    finite: bool = False

    def crossing(self, memory: Memory) -> list[Tensor]:
        """The gradient, and what the device makes of the probes."""
        rows = [memory.rows[self.place]] if self.whole else []
        return rows + ([memory.probes[self.place]] if self.probes is not None else [])


@dataclass(frozen=True)
class Proposed(WorkerResult):
    """Of what a step along a device's gradient would do to the probes."""

    layout: Layout

    def crossing(self, memory: Memory) -> list[Tensor]:
        """The proposal."""
        return [memory.probes[self.place]]


@dataclass(frozen=True)
class FetchedTensor(WorkerResult):
    """Of a tensor at the cut that was asked for; none, where there is none."""

    what: TensorName
    layout: Layout | None

    def crossing(self, memory: Memory) -> list[Tensor]:
        """The tensor."""
        return [] if self.layout is None else [memory.at_cut(self.what)[self.place][: self.layout.numel]]


@dataclass(frozen=True)
class Regularised(WorkerResult):
    """Of a gradient that the derivative of a regulariser was added to, or else that stands in its place."""

    finite: bool
    apart: bool

    def crossing(self, memory: Memory) -> list[Tensor]:
        """The gradient."""
        return [memory.rows[self.place]]


@dataclass(frozen=True)
class Summed(WorkerResult):
    """Of a sum of gradients; the place is the worker's."""

    devices: tuple[int, ...]  # one of each branch
    added: tuple[int, ...]  # the devices that are in it

    def crossing(self, memory: Memory) -> list[Tensor]:
        """The branches."""
        return [memory.sums[self.place][: len(self.devices)]]

    def branches(self, memory: Memory) -> Branches:
        """Return the branches, as views of the memory."""
        return list(zip(self.devices, memory.sums[self.place], strict=False))


@dataclass(frozen=True)
class Value(WorkerResult):
    """Of a gradient its length, or of an evaluation set the probabilities, as an array."""

    found: Any


@dataclass(frozen=True)
class ReplyMessage:
    """What a process is told of a reply to a device: what it has anyway by name, the rest in the memory."""

    step: bool
    own: bool = False  # the gradient is the one that the worker has measured
    rows: Layout | None = None
    probes: int = 0  # how many of the rows are the pull's

    @property
    def numel(self) -> int:
        """How many numbers of it are in the memory."""
        return 0 if self.rows is None else self.rows.numel


def dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor in its own order, without gaps."""
    return torch.empty_like(tensor, device="meta").stride()
