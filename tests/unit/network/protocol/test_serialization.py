"""Messages by hand and by protobuf: the same bytes, the same meaning, and nothing breaks on any bytes."""

import random
import threading
import tracemalloc
from concurrent import futures

import grpc
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import LARGEST_MESSAGE, PART_SIZE, deserialize, serialize

STREAMS = [wire.FromDevice, wire.ToDevice, wire.FromParameterClient, wire.ToParameterClient]
streams = st.sampled_from(STREAMS)
SIZES = [0, 1, 123, 124, 125, 126, 127, 128, 129, 16379, 16380, 16381, 16383, 16384, 2**21 - 5, 2**21]


def values(field):
    """Anything a field can hold."""
    if field.message_type:
        return messages(field.message_type._concrete_class)
    name = field.type
    if name == field.TYPE_DOUBLE:
        return st.floats(allow_nan=False)
    if name == field.TYPE_BOOL:
        return st.booleans()
    if name == field.TYPE_STRING:
        return st.text(max_size=20)
    if name == field.TYPE_BYTES:
        return st.binary(max_size=200)
    width = 63 if name == field.TYPE_INT64 else 31
    return st.integers(-(2**width), 2**width - 1)


@st.composite
def messages(draw, kind):
    """Any message of a kind."""
    message = kind()
    fields = [field for field in kind.DESCRIPTOR.fields if not field.containing_oneof]
    fields += [draw(st.sampled_from([*oneof.fields])) for oneof in kind.DESCRIPTOR.oneofs]
    for field in fields:
        if field.message_type and field.message_type.GetOptions().map_entry:
            keys = st.integers(-(2**31), 2**31 - 1)
            getattr(message, field.name).update(
                draw(st.dictionaries(keys, st.floats(allow_nan=False), max_size=3))
            )
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(values(field), max_size=4)))
        elif field.message_type:
            if field.containing_oneof or draw(st.booleans()):
                getattr(message, field.name).CopyFrom(draw(values(field)))
        else:
            setattr(message, field.name, draw(values(field)))
    return message


def by_protobuf(kind, data):
    """What protobuf reads: a part's bytes, a message as canonical bytes, or nothing where it refuses."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        return None
    return message.part.data if message.WhichOneof("message") == "part" else canonical(message)


def by_hand(kind, data):
    """The same of ours."""
    try:
        found = deserialize(kind, data)
    except WireError as error:
        return None if error.reason == wire.MALFORMED else error
    return canonical(found) if isinstance(found, Message) else bytes(found)


def canonical(message):
    """A message as something that equals itself even where it holds NaN."""
    return type(message).__name__, message.SerializeToString(deterministic=True)


# --- the same as protobuf


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STREAMS)
def test_a_part_has_the_bytes_that_protobuf_writes(kind, size):
    data = random.Random(size).randbytes(size)
    written = kind(part=wire.Part(data=data)).SerializeToString()
    assert serialize(memoryview(data)) == written
    assert deserialize(kind, written) == data
    assert kind.FromString(serialize(memoryview(data))).part.data == data


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_message_goes_both_ways(data):
    kind = data.draw(streams)
    message = data.draw(messages(kind))
    sent = serialize(message)
    assert sent == message.SerializeToString()
    arrived = deserialize(kind, sent)
    if isinstance(arrived, memoryview):
        assert message.part.data == arrived
        assert serialize(arrived) == sent
    else:
        assert arrived == message


@given(streams, st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
@example(wire.FromDevice, b"")
@example(wire.FromDevice, b"\x7a")
@example(wire.FromDevice, b"\x7a\x00")  # an empty part
@example(wire.FromDevice, b"\x7a\x02\x0a\x00")  # one with an empty field
@example(wire.FromDevice, b"\x7a\x81\x80\x80\x80\x00\x00")  # sizes longer than they need be
@example(wire.FromDevice, b"\x7a\x84\x80\x00\x0a\x82\x00ab")
@example(wire.FromDevice, b"\x7a\x83\x80\x80\x80\x80\x80\x80\x80\x80\x00\x0a\x01a")
@example(wire.FromDevice, b"\x7a\x83\x80\x80\x80\x70\x0a\x01a")
@example(wire.FromDevice, b"\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")  # -1
@example(wire.FromDevice, b"\x7a\x03\x0a\x02a")  # cut short
@example(wire.FromDevice, b"\x7a\x03\x0a\x01a\x7a\x03\x0a\x01b")  # twice: protobuf takes the last
@example(wire.FromDevice, b"\x7a\x06\x0a\x01a\x0a\x01b")
@example(wire.FromDevice, b"\x7a\x05\x12\x01x\x0a\x00")  # a field that is unknown
@example(wire.FromDevice, b"\x7a\x03\x0a\x01a\x22\x00")  # another message after it
@example(wire.FromDevice, b"\x22\x00\x7a\x03\x0a\x01a")
@example(wire.FromDevice, b"\x7b\x7c")  # a group
@example(wire.FromDevice, b"\x7b" * 300)
@example(wire.FromDevice, b"\x32\x03\x0a\x01\xff")  # not UTF-8
def test_bytes_mean_what_they_mean_to_protobuf(kind, data):
    assert by_hand(kind, data) == by_protobuf(kind, data)


def test_spoiled_messages_mean_what_they_mean_to_protobuf():
    chance = random.Random(0)
    originals = [serialize(memoryview(chance.randbytes(size))) for size in (1, 5, 120, 130, 300)]
    originals += [
        wire.FromDevice(upload=wire.Upload(round=3, labels=range(9))).SerializeToString(),
        wire.FromDevice(
            ready=wire.Ready(samples=3, stored=[wire.Stored(round=1)], label_counts=[5, 6])
        ).SerializeToString(),
    ]
    understood = 0
    for _ in range(3000):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(min(len(data), 12))] = chance.randrange(256)
        data = bytes(data[: chance.randrange(len(data) + 1)]) if chance.random() < 0.3 else bytes(data)
        kind = chance.choice(STREAMS)
        found = by_hand(kind, data)
        understood += found is not None
        assert found == by_protobuf(kind, data)
    assert 100 < understood < 2900


# --- hostile bytes


def test_a_thousand_random_byte_strings_are_read_or_refused():
    chance = random.Random(1)
    for _ in range(1000):
        data = chance.randbytes(chance.randrange(200))
        for start in (b"", b"\x7a", b"\x7a\xff", b"\x7a\x80\x80\x80\x80\x10\x0a"):
            assert by_hand(wire.FromDevice, start + data) == by_protobuf(wire.FromDevice, start + data)


def test_sizes_that_lie_take_no_memory():
    lies = [
        b"\x7a\xff\xff\xff\xff\x07\x0a\xf9\xff\xff\xff\x07x",  # 2 GiB
        b"\x7a\xff\xff\xff\xff\x7fx",
        b"\x7a\x07\x0a\xff\xff\xff\xff\x07x",
        b"\x7a" + b"\xff" * 100_000,
        b"\x12\xff\xff\xff\xff\x07" + bytes(100),
    ]
    tracemalloc.start()
    try:
        for lie in lies:
            with pytest.raises(WireError, match="not a FromDevice") as refusal:
                deserialize(wire.FromDevice, lie)
            assert refusal.value.reason == wire.MALFORMED
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


# --- without copies


def test_a_part_is_copied_once_when_sent():
    data = bytes(PART_SIZE)
    tracemalloc.start()
    try:
        sent = serialize(memoryview(data))
        assert tracemalloc.get_traced_memory()[1] < 1.01 * PART_SIZE
    finally:
        tracemalloc.stop()
    part = deserialize(wire.FromDevice, sent)
    assert part == data and part.readonly


# --- through gRPC


@pytest.fixture
def echo():
    """A server that answers every message with itself, and says what it could not read."""

    def answer(requests, context):
        for request in requests:
            try:
                yield serialize(deserialize(wire.FromDevice, request))
            except WireError as error:
                refusal = wire.Refusal(reason=error.reason, message=str(error))
                yield serialize(wire.ToDevice(refusal=refusal))
                return

    handlers = {"Join": grpc.stream_stream_rpc_method_handler(answer)}
    limits = [("grpc.max_receive_message_length", LARGEST_MESSAGE)]
    server = grpc.server(futures.ThreadPoolExecutor(2), options=limits)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("gapsl.v1.Training", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=limits) as channel:
        yield channel.stream_stream("/gapsl.v1.Training/Join")
    server.stop(None).wait(10)


def test_messages_and_parts_go_through_a_stream(echo):
    part = random.Random(0).randbytes(PART_SIZE)
    sent = [wire.FromDevice(hello=wire.Hello(name="one", protocol=1)), memoryview(part), memoryview(part)[:5]]
    arrived = [deserialize(wire.FromDevice, data) for data in echo(map(serialize, sent), timeout=60)]
    assert arrived == sent


def test_what_cannot_be_read_becomes_a_refusal(echo):
    hold = threading.Event()

    def hostile():
        yield b"\x7a\xff\xff"
        hold.wait(10)  # the other side ends the stream, not we

    (answer,) = echo(hostile(), timeout=60)
    hold.set()
    refusal = deserialize(wire.ToDevice, answer).refusal
    assert refusal.reason == wire.MALFORMED
    assert "not a FromDevice" in refusal.message
