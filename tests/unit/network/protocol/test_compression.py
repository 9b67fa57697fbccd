"""zstd: smaller, the same afterwards, and never more memory than was agreed."""

import contextlib
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import compress, decode, decompress, describe, sent_bytes
from gapsl.network.protocol.errors import WireError

zstandard = pytest.importorskip("zstandard", reason="the extra zstd is not installed")
MIB = 1 << 20


def packed(data):
    return b"".join(compress([memoryview(data)]))


def refused(data, size, peak=64 * 1024):
    """Unpack what must be refused, with little memory; return why."""
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as refusal:
            decompress(memoryview(data), size)
        assert tracemalloc.get_traced_memory()[1] < peak
    finally:
        tracemalloc.stop()
    assert refusal.value.reason == wire.MALFORMED
    return str(refusal.value)


@given(st.lists(st.binary(max_size=3000) | st.integers(0, 300_000).map(bytes), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_bytes_in_any_pieces_are_the_same_afterwards(pieces):
    data = b"".join(pieces)
    frame = b"".join(compress([memoryview(piece) for piece in pieces]))
    assert len(frame) in sent_bytes(len(data), wire.ZSTD)
    assert decompress(memoryview(frame), len(data)) == data


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 70_000, 128 << 10, (128 << 10) + 1, 3_000_000])
def test_what_cannot_be_compressed_stays_within_the_bound(size):
    data = np.random.default_rng(0).bytes(size)
    frame = packed(data)
    assert size < len(frame) in sent_bytes(size, wire.ZSTD)
    assert sent_bytes(size, wire.ZSTD).stop <= 1.004 * size + 66


def test_activations_after_relu_become_smaller():
    tensor = torch.randn(64, 4096, generator=torch.Generator().manual_seed(0)).relu()
    for codec, most in ((wire.PLAIN, 0.65), (wire.INT8, 0.6)):
        small, plain = describe(tensor, codec, wire.ZSTD), describe(tensor, codec)
        assert small[0].bytes < most * plain[0].bytes
        assert torch.equal(decode(small[0], b"".join(small[1])), decode(plain[0], b"".join(plain[1])))


def test_a_bomb_is_refused_before_it_takes_memory():
    bomb = packed(bytes(64 * MIB))
    assert len(bomb) < 10_000
    assert "states 67108864 bytes where 1024 belong" in refused(bomb, 1024)


def test_a_frame_that_says_less_than_it_holds():
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(bytes(8 * MIB)))
    stated = frame.index((8 * MIB).to_bytes(4, "little"), 4, 12)
    frame[stated : stated + 4] = (1 << 19).to_bytes(4, "little")
    assert zstandard.frame_content_size(frame) == 1 << 19
    refused(bytes(frame), 1 << 19, peak=(1 << 19) + 64 * 1024)


@pytest.mark.parametrize("stated", [2**40, 2**62, 2**64 - 3])
def test_a_frame_that_states_the_absurd(stated):
    header = b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + stated.to_bytes(8, "little")
    assert zstandard.frame_content_size(header + bytes(9)) == stated
    assert "states" in refused(header + bytes(9), 1000)


def test_a_frame_that_does_not_state_its_size():
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    assert "states" in refused(frame, 1000)


def test_frames_that_are_cut_short_or_followed_by_something_or_skipped():
    frame = packed(np.random.default_rng(0).bytes(1000))
    for length in range(len(frame)):
        refused(frame[:length], 1000)
    refused(frame + b"x", 1000)
    refused(frame + frame, 1000)
    skipped = b"\x50\x2a\x4d\x18" + (1000).to_bytes(4, "little") + bytes(1000)
    header = wire.Tensor(dtype=wire.FLOAT32, shape=[250], codec=wire.PLAIN, compression=wire.ZSTD)
    with pytest.raises(WireError):
        decode(header, skipped)


@given(st.binary(max_size=100), st.integers(0, 2000))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused(data, size):
    for frame in (data, b"\x28\xb5\x2f\xfd" + data):
        with contextlib.suppress(WireError):
            assert len(decompress(memoryview(frame), size)) == size


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"pip install 'gapsl\[zstd\]'"):
        describe(torch.ones(2), wire.PLAIN, wire.ZSTD)
