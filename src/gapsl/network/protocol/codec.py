"""Tensors to bytes and back: what announces a tensor on the wire, and the bytes that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.number_formats import NumberFormat, Rounded, RowScaled

DTYPES: Mapping[wire.Dtype, torch.dtype] = {
    wire.FLOAT32: torch.float32,
    wire.FLOAT64: torch.float64,
    wire.INT64: torch.int64,
}
CODECS: Mapping[wire.Codec, NumberFormat] = {
    wire.PLAIN: Rounded(),
    wire.FP16: Rounded(torch.float16),
    wire.BF16: Rounded(torch.bfloat16),
    wire.INT8: RowScaled(),
}
LARGEST_RANK = 8  # dimensions of a tensor; more are a mistake or an attack
ZSTD_LEVEL = 1  # the fastest of the usual ones

WIRE_DTYPES = {dtype: name for name, dtype in DTYPES.items()}


def describe(
    tensor: Tensor, codec: wire.Codec, compression: wire.Compression = wire.UNCOMPRESSED
) -> tuple[wire.Tensor, list[memoryview]]:
    """Return what announces a tensor and its bytes; PLAIN ones are the tensor's own memory where possible.

    So the tensor must not be changed before the bytes are sent. Where it lay in memory (strides, channels
    last) is not sent: its numbers go in row-major order.
    """
    if tensor.dtype not in WIRE_DTYPES:
        raise InputError(f"a tensor of {tensor.dtype} cannot be sent; known: {[*WIRE_DTYPES]}")
    header = wire.Tensor(
        dtype=WIRE_DTYPES[tensor.dtype], shape=tensor.shape, codec=codec, compression=compression
    )
    expected_bytes(header.shape, header.dtype, codec)  # refuses what cannot be decoded
    data = CODECS[codec].write(tensor.detach().cpu())
    if compression == wire.ZSTD:
        data = compress(data)
    header.bytes = sum(map(len, data))
    return header, data


def expected_bytes(shape: Sequence[int], dtype: wire.Dtype, codec: wire.Codec) -> int:
    """Return how many bytes a tensor has before compression, or refuse one that cannot be."""
    if dtype not in DTYPES or codec not in CODECS:
        raise WireError(wire.MALFORMED, f"dtype {dtype} or codec {codec} is unknown")
    if DTYPES[dtype] not in CODECS[codec].writes:
        raise WireError(wire.MALFORMED, f"{wire.Codec.Name(codec)} cannot write {wire.Dtype.Name(dtype)}")
    if len(shape) > LARGEST_RANK:
        raise WireError(wire.TOO_MUCH, f"a tensor of {len(shape)} dimensions; at most {LARGEST_RANK}")
    if any(size < 0 for size in shape):
        raise WireError(wire.MALFORMED, f"a tensor of shape {[*shape]}")
    return CODECS[codec].size(tuple(shape), DTYPES[dtype])


def sent_bytes(size: int, compression: wire.Compression) -> range:
    """Return how many bytes this many may become when they are sent."""
    if compression == wire.UNCOMPRESSED:
        return range(size, size + 1)
    # zstd's own ZSTD_COMPRESSBOUND; a frame is never empty.
    return range(1, size + (size >> 8) + (max((128 << 10) - size, 0) >> 11) + 1)


def decode(header: wire.Tensor, data: bytes | bytearray | memoryview) -> Tensor:
    """Return the tensor that was described; it lives in the memory of `data` where that can be written to.

    It takes memory for as many numbers as the header says, so the header must have been checked against what
    was agreed (framing.TensorSpec).
    """
    size = expected_bytes(header.shape, header.dtype, header.codec)
    if header.compression not in wire.Compression.values():
        raise WireError(wire.MALFORMED, f"compression {header.compression} is unknown")
    plain = memoryview(data) if header.compression == wire.UNCOMPRESSED else decompress(data, size)
    if len(plain) != size:
        raise WireError(wire.MALFORMED, f"{len(plain)} bytes for a tensor that has {size}")
    if plain.readonly:
        plain = memoryview(bytearray(plain))
    return CODECS[header.codec].read(plain, tuple(header.shape), DTYPES[header.dtype])


def compress(data: Sequence[memoryview]) -> list[memoryview]:
    """Return bytes as one zstd frame that states its content size."""
    frame = _zstandard().ZstdCompressor(level=ZSTD_LEVEL).compressobj(size=sum(map(len, data)))
    return [memoryview(piece) for piece in (*map(frame.compress, data), frame.flush()) if piece]


def decompress(data: bytes | bytearray | memoryview, size: int) -> memoryview:
    """Return the bytes that were compressed; never takes memory for more than `size` of them."""
    zstandard = _zstandard()
    try:
        # zstandard takes as much memory as the frame says, so what it says is checked first.
        stated = zstandard.get_frame_parameters(data).content_size
        if stated != size:
            raise WireError(wire.MALFORMED, f"a zstd frame states {stated} bytes where {size} belong")
        return memoryview(zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise WireError(wire.MALFORMED, f"bytes that zstd cannot read: {error}") from error


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise InputError("compression zstd needs a library; run: pip install 'gapsl[zstd]'") from error
    return zstandard
