"""Messages to bytes and back, byte for byte as protobuf writes them, but parts of tensors without its copies.

On a stream a part is a memoryview and everything else a message. gRPC hides what a deserialiser raises behind
INTERNAL, so a stream is opened without one, and what arrives goes through `deserialize` where a WireError can
become a Refusal.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError

# The streams' messages: each is a oneof `message` that has Part as its field 15.
Stream = TypeVar("Stream", wire.FromDevice, wire.ToDevice, wire.FromParameterClient, wire.ToParameterClient)

_PART = 15 << 3 | 2  # the tag of field 15, length-delimited
_DATA = 1 << 3 | 2
_LONGEST_SIZE = 5  # bytes of a varint below 2**35, more than any message has


def serialize(message: Message | memoryview) -> bytes:
    """Return a message's bytes, or those of the message that a part of a tensor stands for."""
    if isinstance(message, Message):
        return message.SerializeToString()
    if not message:
        return bytes((_PART, 0))  # protobuf does not write a field that is empty
    data = bytes((_DATA,)) + _varint(len(message))
    return b"".join((bytes((_PART,)), _varint(len(data) + len(message)), data, message))


def deserialize(kind: type[Stream], data: bytes) -> Stream | memoryview:
    """Return the message of a stream, or a part's own bytes, which are a view of `data`."""
    part = _content(_content(memoryview(data), _PART), _DATA)
    if part is not None:
        return part
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise WireError(wire.MALFORMED, f"not a {kind.__name__} of this protocol: {error}") from error
    # A part that protobuf would not have written like this, but reads.
    return memoryview(message.part.data) if message.WhichOneof("message") == "part" else message


def _content(view: memoryview | None, tag: int) -> memoryview | None:
    """Return what is in a field if the field is all there is; None: let protobuf see what it is."""
    if not view or view[0] != tag:
        return None
    size = 0
    for index, byte in enumerate(view[1 : 1 + _LONGEST_SIZE]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            content = view[2 + index :]
            return content if len(content) == size else None
    return None


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
