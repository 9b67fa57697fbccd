"""Tensors to bytes and back: what announces a tensor on the wire, and the bytes that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.compression import Packing, Unpacked, Zstd
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.number_formats import Half, NumberFormat, Plain, RowScaled

DTYPES: Mapping[wire.Dtype, torch.dtype] = {
    wire.FLOAT32: torch.float32,
    wire.FLOAT64: torch.float64,
    wire.INT64: torch.int64,
}
CODECS: Mapping[wire.Codec, NumberFormat] = {
    wire.PLAIN: Plain(),
    wire.FP16: Half(torch.float16),
    wire.BF16: Half(torch.bfloat16),
    wire.INT8: RowScaled(),
}
COMPRESSIONS: Mapping[wire.Compression, Packing] = {
    wire.UNCOMPRESSED: Unpacked(),
    wire.ZSTD: Zstd(),
}
LARGEST_RANK = 8  # dimensions of a tensor; more are a mistake or an attack

_WIRE_DTYPES = {dtype: name for name, dtype in DTYPES.items()}


def describe(
    tensor: Tensor, codec: wire.Codec, compression: wire.Compression = wire.UNCOMPRESSED
) -> tuple[wire.Tensor, list[memoryview]]:
    """Return what announces a tensor and its bytes; PLAIN ones are the tensor's own memory where possible.

    So the tensor must not be changed before the bytes are sent. Where it lay in memory (strides, channels
    last) is not sent: its numbers go in row-major order.
    """
    if tensor.dtype not in _WIRE_DTYPES:
        raise InputError(f"a tensor of {tensor.dtype} cannot be sent; known: {[*_WIRE_DTYPES]}")
    header = wire.Tensor(
        dtype=_WIRE_DTYPES[tensor.dtype], shape=tensor.shape, codec=codec, compression=compression
    )
    expected_bytes(header.shape, header.dtype, codec)  # refuses what cannot be decoded
    data = COMPRESSIONS[compression].pack(CODECS[codec].write(tensor.detach().cpu()))
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


def decode(header: wire.Tensor, data: bytes | bytearray | memoryview) -> Tensor:
    """Return the tensor that was described; it lives in the memory of `data` where that can be written to.

    It takes memory for as many numbers as the header says, so the header must have been checked against what
    was agreed (framing.Expected).
    """
    size = expected_bytes(header.shape, header.dtype, header.codec)
    if header.compression not in COMPRESSIONS:
        raise WireError(wire.MALFORMED, f"compression {header.compression} is unknown")
    plain = COMPRESSIONS[header.compression].unpack(memoryview(data), size)
    if len(plain) != size:
        raise WireError(wire.MALFORMED, f"{len(plain)} bytes for a tensor that has {size}")
    if plain.readonly:
        plain = memoryview(bytearray(plain))
    return CODECS[header.codec].read(plain, tuple(header.shape), DTYPES[header.dtype])


_Value = TypeVar("_Value", bound=int)


def _check_complete(enum: EnumTypeWrapper, implemented: Mapping[_Value, object]) -> None:
    missing = [name for name, value in enum.items() if value not in implemented and "UNKNOWN" not in name]
    if missing:
        raise ImportError(f"wire.proto has {', '.join(missing)}, which the codec does not implement")


_check_complete(wire.Dtype, DTYPES)
_check_complete(wire.Codec, CODECS)
_check_complete(wire.Compression, COMPRESSIONS)
