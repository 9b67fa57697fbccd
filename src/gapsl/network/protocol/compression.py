"""Compressions of the bytes of a tensor, undone into a size that is known before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError


class Packing(ABC):
    """One compression."""

    @abstractmethod
    def bound(self, size: int) -> range:
        """Return how many bytes this many may become."""

    @abstractmethod
    def pack(self, data: list[memoryview]) -> list[memoryview]:
        """Return the same bytes, compressed."""

    @abstractmethod
    def unpack(self, data: memoryview, size: int) -> memoryview:
        """Return the bytes that were packed; never takes memory for more than `size` of them."""


class Unpacked(Packing):
    """The bytes as they are."""

    def bound(self, size: int) -> range:
        return range(size, size + 1)

    def pack(self, data: list[memoryview]) -> list[memoryview]:
        return data

    def unpack(self, data: memoryview, size: int) -> memoryview:
        return data


class Zstd(Packing):
    """One zstd frame that states its content size, at the fastest of the usual levels."""

    level = 1

    def bound(self, size: int) -> range:
        # zstd's own ZSTD_COMPRESSBOUND; a frame is never empty.
        return range(1, size + (size >> 8) + (max((128 << 10) - size, 0) >> 11) + 1)

    def pack(self, data: list[memoryview]) -> list[memoryview]:
        frame = _zstandard().ZstdCompressor(level=self.level).compressobj(size=sum(map(len, data)))
        return _filled([*map(frame.compress, data), frame.flush()])

    def unpack(self, data: memoryview, size: int) -> memoryview:
        zstandard = _zstandard()
        try:
            # zstandard takes as much memory as the frame says, so what it says is checked first.
            stated = zstandard.get_frame_parameters(data).content_size
            if stated != size:
                raise WireError(wire.MALFORMED, f"a zstd frame states {stated} bytes where {size} belong")
            return memoryview(zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False))
        except zstandard.ZstdError as error:
            raise WireError(wire.MALFORMED, f"bytes that zstd cannot read: {error}") from error


def _filled(data: Iterable[bytes]) -> list[memoryview]:
    return [memoryview(piece) for piece in data if piece]


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise InputError("compression zstd needs a library; run: pip install 'gapsl[zstd]'") from error
    return zstandard
