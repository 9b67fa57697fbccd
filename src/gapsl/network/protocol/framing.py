"""Messages and tensors on a stream: a tensor goes in parts and comes together within what was agreed.

On a stream a part is a memoryview and everything else a message. gRPC hides what a deserialiser raises behind
INTERNAL, so a stream is opened without one, and what arrives goes through `deserialize` where a WireError can
become a Refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import DecodeError, Message
from torch import Tensor

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import decode, expected_bytes, sent_bytes
from gapsl.network.protocol.errors import WireError

PART_SIZE = 1 << 20
# For gRPC's own limit on what it receives: a part and its frame. No other message comes near.
LARGEST_MESSAGE = PART_SIZE + 1024

# The streams' messages: each is a oneof `message` that has Part as its field 15.
Stream = TypeVar(
    "Stream",
    wire.FromDevice,
    wire.ToDevice,
    wire.FromParameterClient,
    wire.ToParameterClient,
    wire.FromPredictor,
    wire.ToPredictor,
)

_PART, _DATA = 15 << 3 | 2, 1 << 3 | 2  # tags of the fields of a part, both length-delimited


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
            least, most = (0, agreed.size) if isinstance(agreed, AtMost) else (agreed, agreed)
            if not least <= size <= most:
                raise WireError(
                    wire.TOO_MUCH if size > most else wire.MALFORMED,
                    f"dimension {axis} is {size} where {most} was agreed",
                )
        plain = expected_bytes(header.shape, header.dtype, header.codec)
        fitting = sent_bytes(plain, header.compression)
        if header.bytes not in fitting:
            raise WireError(
                wire.TOO_MUCH if header.bytes >= fitting.stop else wire.MALFORMED,
                f"{header.bytes} bytes announced for a tensor of {plain}",
            )


class Assembler:
    """Puts the tensors of one stream together, one at a time, in memory that is taken once."""

    def __init__(self) -> None:
        self._header: wire.Tensor | None = None  # of the tensor that is arriving
        self._memory, self._filled = memoryview(b""), 0

    @property
    def waiting(self) -> bool:
        """Say whether parts are due, and nothing else is."""
        return self._header is not None

    def start(self, header: wire.Tensor, expected: TensorSpec) -> Tensor | None:
        """Take what announces a tensor; return the tensor if it has no bytes and so is complete."""
        if self.waiting:
            raise WireError(wire.MALFORMED, "a tensor was announced before the last one was complete")
        expected.check(header)
        self._header, self._memory, self._filled = header, np.empty(header.bytes, dtype=np.uint8).data, 0
        return self._finished()

    def add(self, part: memoryview) -> Tensor | None:
        """Take a part; return the tensor if this was the last one."""
        if not self.waiting:
            raise WireError(wire.MALFORMED, "a part of a tensor that was not announced")
        if not part:
            raise WireError(wire.MALFORMED, "an empty part")
        end, missing = self._filled + len(part), len(self._memory) - self._filled
        if len(part) > missing:
            raise WireError(wire.TOO_MUCH, f"a part of {len(part)} bytes where {missing} are missing")
        self._memory[self._filled : end] = part
        self._filled = end
        return self._finished()

    def _finished(self) -> Tensor | None:
        if self._header is None or self._filled < len(self._memory):
            return None
        header, memory = self._header, self._memory
        self._header, self._memory = None, memoryview(b"")
        return decode(header, memory)


def _check_choice(enum: EnumTypeWrapper, value: int, agreed: Collection[int]) -> None:
    if value not in agreed:
        names = " or ".join(map(enum.Name, agreed))
        named = enum.Name(value) if value in enum.values() else str(value)
        raise WireError(wire.MALFORMED, f"a tensor in {named} where {names} was agreed")


# --- sending


def parts(data: Iterable[memoryview], size: int = PART_SIZE) -> Iterator[memoryview]:
    """Yield the bytes of a tensor in pieces of at most `size`, without copying, none of them empty."""
    for piece in data:
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def framed(message: Stream, payload: Sequence[memoryview] = ()) -> Iterator[Stream | memoryview]:
    """Yield a message and the parts of its tensor."""
    yield message
    yield from parts(payload)


def serialize(message: Message | memoryview) -> bytes:
    """Return a message's bytes, or those of the message that a part of a tensor stands for.

    A part is written by hand, byte for byte as protobuf does, which takes 70 times as long for its copies.
    """
    if isinstance(message, Message):
        return message.SerializeToString()
    if not message:
        return bytes((_PART, 0))  # protobuf does not write a field that is empty
    data = bytes((_DATA,)) + _varint(len(message))
    return b"".join((bytes((_PART,)), _varint(len(data) + len(message)), data, message))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# --- receiving


def deserialize(kind: type[Stream], data: bytes) -> Stream | memoryview:
    """Return the message of a stream, or a part's own bytes."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise WireError(wire.MALFORMED, f"not a {kind.__name__} of this protocol: {error}") from error
    return memoryview(message.part.data) if message.WhichOneof("message") == "part" else message


def received(
    kind: type[Stream],
    stream: Iterable[bytes],
    announced: Callable[[Stream], tuple[wire.Tensor, TensorSpec] | None],
) -> Iterator[tuple[Stream, Tensor | None]]:
    """Yield the messages of a stream, each with its tensor when that is complete.

    `announced` says which tensor a message announces, if any, and what was agreed about it.
    """
    assembler, current = Assembler(), kind()
    for data in stream:
        message = deserialize(kind, data)
        if isinstance(message, memoryview):
            tensor = assembler.add(message)
        elif assembler.waiting:
            raise WireError(wire.MALFORMED, "a message where a part of a tensor is due")
        else:
            current, found = message, announced(message)
            if found is None:
                yield current, None
                continue
            tensor = assembler.start(*found)
        if tensor is not None:
            yield current, tensor
