"""Tensors in parts: cutting what is sent, and putting together what arrives, within what was agreed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from torch import Tensor

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import COMPRESSIONS, decode, expected_bytes
from gapsl.network.protocol.errors import WireError

PART_SIZE = 1 << 20
# For gRPC's own limit on what it receives: a part and its frame. No other message comes near.
LARGEST_MESSAGE = PART_SIZE + 1024


def parts(data: Iterable[memoryview], size: int = PART_SIZE) -> Iterator[memoryview]:
    """Yield the bytes of a tensor in pieces of at most `size`, without copying, none of them empty."""
    for piece in data:
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


class AtMost(NamedTuple):
    """A dimension whose size is not agreed, only its limit: the samples of a batch."""

    size: int


@dataclass(frozen=True)
class TensorSpec:
    """What was agreed about a tensor."""

    dtype: wire.Dtype
    shape: tuple[int | AtMost, ...]
    codecs: tuple[wire.Codec, ...] = (wire.PLAIN,)
    compressions: tuple[wire.Compression, ...] = (wire.UNCOMPRESSED,)

    def check(self, header: wire.Tensor) -> None:
        """Refuse a tensor that is anything else; costs nothing that grows with what the header says."""
        _check_choice(wire.Dtype, header.dtype, (self.dtype,))
        _check_choice(wire.Codec, header.codec, self.codecs)
        _check_choice(wire.Compression, header.compression, self.compressions)
        if len(header.shape) != len(self.shape):
            raise WireError(
                wire.MALFORMED, f"{len(header.shape)} dimensions where {len(self.shape)} were agreed"
            )
        for axis, (size, agreed) in enumerate(zip(header.shape, self.shape, strict=True)):
            _check_size(f"dimension {axis}", size, agreed)
        plain = expected_bytes(header.shape, header.dtype, header.codec)
        fitting = COMPRESSIONS[header.compression].bound(plain)
        if header.bytes not in fitting:
            raise WireError(
                wire.TOO_MUCH if header.bytes >= fitting.stop else wire.MALFORMED,
                f"{header.bytes} bytes announced for a tensor of {plain}",
            )


class Assembler:
    """Puts the tensors of one stream together, one at a time, in memory that is taken once."""

    def __init__(self) -> None:
        self._open: _Arriving | None = None

    @property
    def waiting(self) -> bool:
        """Say whether parts are due, and nothing else is."""
        return self._open is not None

    def start(self, header: wire.Tensor, expected: TensorSpec) -> Tensor | None:
        """Take what announces a tensor; return the tensor if it has no bytes and so is complete."""
        if self.waiting:
            raise WireError(wire.MALFORMED, "a tensor was announced before the last one was complete")
        expected.check(header)
        self._open = _Arriving(header, np.empty(header.bytes, dtype=np.uint8).data)
        return self._finished()

    def add(self, part: memoryview) -> Tensor | None:
        """Take a part; return the tensor if this was the last one."""
        if self._open is None:
            raise WireError(wire.MALFORMED, "a part of a tensor that was not announced")
        self._open.add(part)
        return self._finished()

    def _finished(self) -> Tensor | None:
        if self._open is None or self._open.missing:
            return None
        arrived, self._open = self._open, None
        return arrived.tensor()


@dataclass
class _Arriving:
    """A tensor of which `filled` bytes have arrived."""

    header: wire.Tensor
    memory: memoryview
    filled: int = 0

    @property
    def missing(self) -> int:
        return len(self.memory) - self.filled

    def add(self, part: memoryview) -> None:
        if not part:
            raise WireError(wire.MALFORMED, "an empty part")
        if len(part) > self.missing:
            raise WireError(wire.TOO_MUCH, f"a part of {len(part)} bytes where {self.missing} are missing")
        end = self.filled + len(part)
        self.memory[self.filled : end] = part
        self.filled = end

    def tensor(self) -> Tensor:
        return decode(self.header, self.memory)


def _check_choice(enum: EnumTypeWrapper, value: int, agreed: Collection[int]) -> None:
    if value not in agreed:
        names = " or ".join(map(enum.Name, agreed))
        named = enum.Name(value) if value in enum.values() else str(value)
        raise WireError(wire.MALFORMED, f"a tensor in {named} where {names} was agreed")


def _check_size(what: str, size: int, agreed: int | AtMost) -> None:
    largest = agreed.size if isinstance(agreed, AtMost) else agreed
    if size > largest:
        raise WireError(wire.TOO_MUCH, f"{what} is {size} where {largest} was agreed")
    if size < 0 or (size < largest and not isinstance(agreed, AtMost)):
        raise WireError(wire.MALFORMED, f"{what} is {size} where {largest} was agreed")
