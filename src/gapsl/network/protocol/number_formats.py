"""The codecs: how a tensor's numbers become bytes, and how many (what each loses: docs/protocol.md)."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError

if sys.byteorder != "little":
    raise ImportError("gapsl.network writes numbers as they are in memory, and the wire is little-endian")

Shape = tuple[int, ...]


class NumberFormat(ABC):
    """One codec; it may count on a shape without negative numbers and on as many bytes as `size` says."""

    writes: frozenset[torch.dtype] = frozenset({torch.float32, torch.float64})

    @abstractmethod
    def size(self, shape: Shape, dtype: torch.dtype) -> int:
        """Return how many bytes a tensor becomes."""

    @abstractmethod
    def write(self, tensor: Tensor) -> list[memoryview]:
        """Return a tensor's bytes in row-major order; they may be the tensor's own memory."""

    @abstractmethod
    def read(self, data: memoryview, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Return the tensor that was written; it may live in the memory of its bytes."""


class Rounded(NumberFormat):
    """The numbers as they are in memory, or rounded to the nearest even of a shorter dtype.

    NaN and infinities stay what they are. A finite number beyond the range becomes the largest finite one of
    its sign: an infinity would say that training has diverged, which it has not. FP16 is less exact below
    6e-5 and has nothing below 6e-8, where gradients of a mean loss may well be; BF16 has float32's range.
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self._dtype = dtype
        self.writes = NumberFormat.writes if dtype is not None else NumberFormat.writes | {torch.int64}

    def size(self, shape: Shape, dtype: torch.dtype) -> int:
        return math.prod(shape) * (self._dtype or dtype).itemsize

    def write(self, tensor: Tensor) -> list[memoryview]:
        return [_bytes(tensor if self._dtype is None else _rounded(tensor, self._dtype))]

    def read(self, data: memoryview, shape: Shape, dtype: torch.dtype) -> Tensor:
        return _numbers(data, self._dtype or dtype).reshape(shape).to(dtype)


class RowScaled(NumberFormat):
    """A signed byte a number, in steps of 1/127 of the largest of its row (an index of the first dimension).

    The steps of all rows (their scales) come first, in float32: 0 for a row of zeros, never between that and
    the smallest normal number. NaN and infinities cannot be written.
    """

    def size(self, shape: Shape, dtype: torch.dtype) -> int:
        return _rows(shape) * torch.float32.itemsize + math.prod(shape)

    def write(self, tensor: Tensor) -> list[memoryview]:
        values = _by_rows(_rounded(tensor, torch.float32))
        steps = _steps(values)
        counts = values / torch.where(steps > 0, steps, 1.0)[:, None]
        return [_bytes(steps), _bytes(counts.round_().to(torch.int8))]

    def read(self, data: memoryview, shape: Shape, dtype: torch.dtype) -> Tensor:
        split = _rows(shape) * torch.float32.itemsize
        steps = _numbers(data[:split], torch.float32)
        if not bool(((steps >= 0) & (steps < torch.inf)).all()):
            raise WireError(wire.NOT_FINITE, "the scale of an INT8 row is negative, infinite or NaN")
        counts = _by_rows(_numbers(data[split:], torch.int8).reshape(shape))
        return counts.to(torch.float32).mul_(steps[:, None]).reshape(shape).to(dtype)


def _rows(shape: Shape) -> int:
    return shape[0] if shape else 1


def _by_rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(_rows(tensor.shape), math.prod(tensor.shape[1:]))


def _steps(rows: Tensor) -> Tensor:
    if not rows.numel():
        return torch.zeros(len(rows), dtype=torch.float32)
    largest = torch.maximum(rows.amax(dim=1), -rows.amin(dim=1))  # aminmax of a dimension is slow
    if not bool(largest.isfinite().all()):
        raise WireError(wire.NOT_FINITE, "INT8 cannot write NaN or infinities; FP16, BF16 and PLAIN can")
    kind = torch.finfo(torch.float32)
    # Below a normal number a step loses its precision; a hair above max / 127, 127 steps are infinite.
    steps = (largest / 127).clamp(kind.smallest_normal, kind.max * (1 - kind.eps) / 127)
    return torch.where(largest > 0, steps, 0.0)


def _rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the nearest numbers of a dtype, the largest finite one for a finite number beyond its range."""
    largest = torch.finfo(dtype).max
    if tensor.dtype != dtype and tensor.numel():
        low, high = tensor.aminmax()  # NaN if there is one; then, too, the long way
        if not bool((low >= -largest) & (high <= largest)):
            tensor = torch.where(tensor.isinf(), tensor, tensor.clamp(-largest, largest))
    return tensor.to(dtype)


def _bytes(tensor: Tensor) -> memoryview:
    """Return a tensor's memory, or that of a copy in row-major order where it is in another."""
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))  # reshape may leave a stride of 0
    return flat.view(torch.uint8).numpy().data.toreadonly()


def _numbers(data: memoryview, dtype: torch.dtype) -> Tensor:
    if not data:
        return torch.empty(0, dtype=dtype)  # frombuffer refuses no bytes
    return torch.frombuffer(data, dtype=dtype)
