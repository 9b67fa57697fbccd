"""Tensors in parts: what was agreed arrives whole, anything else is refused before memory is taken for it."""

import contextlib
import math
import random
import tracemalloc

import pytest
import torch
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import PART_SIZE, Assembler, AtMost, TensorSpec, parts

EVERY = (wire.PLAIN, wire.FP16, wire.BF16, wire.INT8)
AGREED = TensorSpec(
    wire.FLOAT32,
    (AtMost(64), 16, 8, 8),
    codecs=EVERY,
    compressions=(wire.UNCOMPRESSED, wire.ZSTD),
)
VAST = TensorSpec(wire.FLOAT32, (AtMost(2**40),))
VALUES = [-(2**63), -(2**62), -1, 0, 1, 63, 64, 65, 2**31, 2**32 + 1, 2**62, 2**63 - 1]


def announce(shape=(64, 16, 8, 8), dtype=wire.FLOAT32, codec=wire.PLAIN, compression=0, size=64 * 4096):
    return wire.Tensor(dtype=dtype, shape=shape, codec=codec, compression=compression, bytes=size)


def assemble(header, data, expected, size=PART_SIZE):
    """Send a tensor through an assembler; it must be complete with its last part and not before."""
    assembler = Assembler()
    arrived = assembler.start(header, expected)
    for part in parts(data, size):
        assert arrived is None and assembler.waiting
        arrived = assembler.add(part)
    assert not assembler.waiting
    return arrived


@contextlib.contextmanager
def refused(reason=None, match=None):
    """Expect a refusal, with little memory taken on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=match) as refusal:
            yield
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()
    assert refusal.value.reason == (reason or refusal.value.reason)
    assert refusal.value.reason != wire.REASON_UNKNOWN
    assert len(str(refusal.value)) < 500


# --- what was agreed


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
@settings(deadline=None)
def test_parts_are_the_bytes_in_order_none_empty_none_too_large(pieces, size):
    cut = list(parts([memoryview(piece) for piece in pieces], size))
    assert b"".join(cut) == b"".join(pieces)
    assert all(0 < len(part) <= size for part in cut)


def test_parts_are_views():
    data = bytearray(3 * PART_SIZE + 5)
    cut = list(parts([memoryview(data)]))
    data[0] = 7
    assert cut[0][0] == 7
    assert [len(part) for part in cut] == [PART_SIZE] * 3 + [5]


@pytest.mark.parametrize("codec", EVERY, ids=wire.Codec.Name)
@pytest.mark.parametrize("compression", [wire.UNCOMPRESSED, wire.ZSTD])
@pytest.mark.parametrize("rows", [0, 1, 64])
@pytest.mark.parametrize("size", [997, PART_SIZE])
def test_a_tensor_arrives_whole(codec, compression, rows, size):
    tensor = torch.randn(rows, 16, 8, 8).relu()
    header, data = describe(tensor, codec, compression)
    arrived = assemble(header, data, AGREED, size)
    again, whole = describe(arrived, wire.PLAIN)
    assert again.shape == header.shape
    if codec == wire.PLAIN:
        assert b"".join(whole) == describe(tensor, wire.PLAIN)[1][0]
    else:
        assert torch.allclose(arrived, tensor, atol=0.05, rtol=2**-8)


@given(st.lists(st.integers(0, 4), max_size=4), st.integers(1, 40), st.sampled_from(EVERY))
@settings(max_examples=80, deadline=None)
def test_any_shape_in_parts_of_any_size(shape, size, codec):
    tensor = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    expected = TensorSpec(wire.FLOAT32, tuple(shape), codecs=EVERY)
    arrived = assemble(*describe(tensor, codec), expected, size)
    assert arrived.shape == tensor.shape
    assert torch.allclose(arrived, tensor, atol=1.0)


def test_one_assembler_takes_tensors_one_after_the_other():
    assembler = Assembler()
    for value in range(3):
        header, data = describe(torch.full((2, 2), value, dtype=torch.int64), wire.PLAIN)
        assert assembler.start(header, TensorSpec(wire.INT64, (2, 2))) is None
        (part,) = parts(data)
        assert assembler.add(part).tolist() == [[value, value], [value, value]]


def test_tensors_do_not_share_memory_with_parts_or_each_other():
    assembler = Assembler()
    sent = bytearray(torch.ones(4).numpy().tobytes())
    arrived = []
    for _ in range(2):
        assembler.start(announce([4], size=16), TensorSpec(wire.FLOAT32, (4,)))
        arrived.append(assembler.add(memoryview(sent)))
    sent[:] = bytes(16)
    arrived[0].zero_()
    assert arrived[1].tolist() == [1, 1, 1, 1]


# --- headers


@pytest.mark.parametrize(
    ("header", "reason", "match"),
    [
        (wire.Tensor(), wire.MALFORMED, "DTYPE_UNKNOWN where FLOAT32"),
        (announce(dtype=wire.FLOAT64), wire.MALFORMED, "FLOAT64 where FLOAT32"),
        (announce(dtype=77), wire.MALFORMED, "77 where FLOAT32"),
        (announce(dtype=-1), wire.MALFORMED, "-1 where FLOAT32"),
        (announce(codec=0), wire.MALFORMED, "CODEC_UNKNOWN where PLAIN or FP16"),
        (announce(codec=1000), wire.MALFORMED, "1000 where PLAIN"),
        (announce(compression=2), wire.MALFORMED, "2 where UNCOMPRESSED or ZSTD"),
        (announce(shape=[]), wire.MALFORMED, "0 dimensions where 4"),
        (announce(shape=[64, 1024]), wire.MALFORMED, "2 dimensions where 4"),
        (announce(shape=[1] * 100_000), wire.MALFORMED, "100000 dimensions where 4"),
        (announce(shape=[2**62] * 100_000), wire.MALFORMED, "100000 dimensions where 4"),
        (announce(shape=[65, 16, 8, 8]), wire.TOO_MUCH, "dimension 0 is 65 where 64"),
        (announce(shape=[-1, 16, 8, 8]), wire.MALFORMED, "dimension 0 is -1"),
        (announce(shape=[64, 15, 8, 8]), wire.MALFORMED, "dimension 1 is 15 where 16"),
        (announce(shape=[64, 16, 8, 2**62]), wire.TOO_MUCH, "dimension 3"),
        (announce(shape=[2**32, 2**32, 8, 8]), wire.TOO_MUCH, "dimension 0"),
        (announce(size=64 * 4096 - 1), wire.MALFORMED, "262143 bytes announced for a tensor of 262144"),
        (announce(size=64 * 4096 + 1), wire.TOO_MUCH, "bytes announced"),
        (announce(size=0), wire.MALFORMED, "bytes announced"),
        (announce(size=-1), wire.MALFORMED, "bytes announced"),
        (announce(size=2**63 - 1), wire.TOO_MUCH, "bytes announced"),
        (announce(codec=wire.INT8), wire.TOO_MUCH, "for a tensor of 65792"),
        (announce(compression=wire.ZSTD, size=0), wire.MALFORMED, "bytes announced"),
        (announce(compression=wire.ZSTD, size=64 * 4096 + 1025), wire.TOO_MUCH, "bytes announced"),
        (announce(compression=wire.ZSTD, size=2**62), wire.TOO_MUCH, "bytes announced"),
    ],
    ids=lambda value: str(value).replace("\n", " ")[:40],
)
def test_what_was_not_agreed_takes_no_memory(header, reason, match):
    assembler = Assembler()
    with refused(reason, match):
        assembler.start(header, AGREED)
    assert not assembler.waiting
    with refused(wire.MALFORMED, "not announced"):
        assembler.add(memoryview(b"x"))


@given(
    st.builds(
        announce,
        shape=st.lists(st.sampled_from(VALUES) | st.integers(-(2**63), 2**63 - 1), max_size=6),
        dtype=st.integers(-(2**31), 2**31 - 1) | st.sampled_from(wire.Dtype.values()),
        codec=st.integers(-(2**31), 2**31 - 1) | st.sampled_from(wire.Codec.values()),
        compression=st.integers(-(2**31), 2**31 - 1) | st.sampled_from(wire.Compression.values()),
        size=st.sampled_from(VALUES) | st.integers(-(2**63), 2**63 - 1),
    )
)
@settings(max_examples=500, deadline=None)
@example(announce(shape=[2**62, 4], size=0))  # whose product is 0 in 64 bits
@example(announce(shape=[2**31, 2**31], size=2**62))
def test_absurd_headers_take_no_memory(header):
    # Of this agreement none of them is: each of its dimensions has a size that no list above has.
    expected = TensorSpec(wire.FLOAT32, (1234, AtMost(56), 78), codecs=EVERY, compressions=(0, 1))
    with refused():
        Assembler().start(header, expected)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_bytes_must_be_those_of_the_shape_even_where_any_size_was_agreed(rows, size):
    if not (0 <= rows <= 2**40 and size == 4 * rows):
        with refused():
            Assembler().start(announce([rows], size=size), VAST)


def test_an_announced_tensor_takes_its_memory_once():
    tracemalloc.start()
    try:
        assembler = Assembler()
        assembler.start(announce(), AGREED)
        before = tracemalloc.get_traced_memory()[0]
        assert 64 * 4096 <= before < 64 * 4096 + 20_000
        for _ in range(63):
            assembler.add(memoryview(bytes(4096)))
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


def test_random_bytes_and_spoiled_bytes_as_headers():
    chance = random.Random(0)
    agreed = TensorSpec(wire.FLOAT32, AGREED.shape, codecs=EVERY)
    valid = announce().SerializeToString()
    read = 0
    for _ in range(1000):
        spoiled = bytearray(valid)
        spoiled[chance.randrange(len(valid))] ^= chance.randrange(1, 256)
        for data in (chance.randbytes(chance.randrange(60)), bytes(spoiled)):
            with contextlib.suppress(DecodeError):
                header = wire.Tensor.FromString(data)
                read += 1
                with pytest.raises(WireError):
                    Assembler().start(header, agreed)
    assert read > 300


# --- parts


def test_a_part_that_nothing_announced():
    with refused(wire.MALFORMED, "not announced"):
        Assembler().add(memoryview(b"abc"))


def test_a_part_after_the_last():
    assembler = Assembler()
    assembler.start(announce([2], size=8), TensorSpec(wire.FLOAT32, (2,)))
    assert assembler.add(memoryview(bytes(8))) is not None
    with refused(wire.MALFORMED, "not announced"):
        assembler.add(memoryview(bytes(1)))


def test_a_part_of_a_tensor_without_bytes():
    assembler = Assembler()
    assert assembler.start(announce([0, 16, 8, 8], size=0), AGREED).shape == (0, 16, 8, 8)
    with refused(wire.MALFORMED, "not announced"):
        assembler.add(memoryview(bytes(1)))


def test_more_bytes_than_announced():
    assembler = Assembler()
    assembler.start(announce([2], size=8), TensorSpec(wire.FLOAT32, (2,)))
    assert assembler.add(memoryview(bytes(5))) is None
    with refused(wire.TOO_MUCH, "a part of 4 bytes where 3 are missing"):
        assembler.add(memoryview(bytes(4)))


def test_an_empty_part():
    assembler = Assembler()
    assembler.start(announce(), AGREED)
    with refused(wire.MALFORMED, "empty part"):
        assembler.add(memoryview(b""))


def test_a_tensor_announced_while_another_arrives():
    assembler = Assembler()
    assembler.start(announce(), AGREED)
    assembler.add(memoryview(bytes(100)))
    with refused(wire.MALFORMED, "before the last one was complete"):
        assembler.start(announce(), AGREED)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_compressed_bytes_that_are_spoiled(data):
    tensor = torch.arange(64 * 16, dtype=torch.float32).reshape(64, 16)
    header, pieces = describe(tensor, wire.PLAIN, wire.ZSTD)
    sent = bytearray(b"".join(pieces))
    for index in data.draw(st.lists(st.integers(0, len(sent) - 1), min_size=1, max_size=4)):
        sent[index] ^= data.draw(st.integers(1, 255))
    expected = TensorSpec(wire.FLOAT32, (AtMost(64), 16), compressions=(wire.ZSTD,))
    with contextlib.suppress(WireError):  # a changed literal may well be readable
        assert assemble(header, [memoryview(sent)], expected).shape == (64, 16)


def test_a_bomb_takes_no_more_than_its_own_bytes():
    header, pieces = describe(torch.zeros(1 << 24), wire.PLAIN, wire.ZSTD)
    bomb = b"".join(pieces)
    assert len(bomb) < 10_000
    header.shape[:] = [1 << 12]
    assembler = Assembler()
    assembler.start(header, TensorSpec(wire.FLOAT32, (AtMost(1 << 12),), compressions=(wire.ZSTD,)))
    with refused(wire.MALFORMED, "states 67108864 bytes where 16384 belong"):
        assembler.add(memoryview(bomb))


# --- values


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("codec", [wire.PLAIN, wire.FP16, wire.BF16], ids=wire.Codec.Name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_are_not_finite_arrive_as_they_are(value, codec, dtype):
    tensor = torch.ones(3, 5, dtype=dtype)
    tensor[2, 4] = value
    header, data = describe(tensor, codec)
    arrived = assemble(header, data, TensorSpec(header.dtype, (3, 5), codecs=EVERY))
    assert torch.equal(arrived.isfinite(), tensor.isfinite())
