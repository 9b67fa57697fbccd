"""Tensors to bytes and back: nothing lost by PLAIN, no more than was promised by the others."""

import contextlib
import ctypes
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gapsl.common.errors import InputError
from gapsl.network.protocol import number_formats
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import CODECS, DTYPES, decode, describe, expected_bytes
from gapsl.network.protocol.errors import WireError

LOSSY = [wire.FP16, wire.BF16, wire.INT8]
EVERY = [wire.PLAIN, *LOSSY]
FLOATS = [torch.float32, torch.float64]
LARGEST = torch.finfo(torch.float32).max
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf])
NUMPY = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
named = pytest.mark.parametrize("kind", EVERY, ids=wire.Codec.Name)
shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


def largest_error(kind, tensor):
    """The most by which each finite number may differ after writing and reading, in float64."""
    if kind == wire.PLAIN:
        return torch.zeros_like(tensor, dtype=torch.float64)
    single = rounding(tensor, torch.float32)
    if kind != wire.INT8:
        return rounding(tensor, {wire.FP16: torch.float16, wire.BF16: torch.bfloat16}[kind]) + single
    steps = number_formats._steps(number_formats._by_rows(number_formats._rounded(tensor, torch.float32)))
    # Half a step, and what float32 loses where 127 steps are divided and multiplied again.
    rows = number_formats._by_rows(tensor).shape
    return (steps.double()[:, None] * (0.5 + 2**-16)).expand(rows).reshape(tensor.shape) + single


def rounding(tensor, dtype):
    """Half a unit in the last place of a dtype, and what is beyond its range."""
    size = tensor.double().abs()
    if tensor.dtype == dtype:
        return torch.zeros_like(size)
    kind = torch.finfo(dtype)
    return size.clamp(kind.smallest_normal, kind.max) * (kind.eps / 2) + (size - kind.max).clamp_min(0)


def through(tensor, kind, compression=wire.UNCOMPRESSED):
    """The tensor as the other side has it."""
    header, data = describe(tensor, kind, compression)
    sent = b"".join(data)
    assert header.bytes == len(sent)
    if not compression:
        assert len(sent) == expected_bytes(header.shape, header.dtype, kind)
    arrived = decode(header, sent)
    assert (arrived.dtype, arrived.shape) == (tensor.dtype, tensor.shape)
    return arrived


def bits(tensor):
    return describe(tensor, wire.PLAIN)[1][0].tobytes()


@st.composite
def tensors(draw, dtype=torch.float32, finite=True):
    width = 32 if dtype == torch.float32 else 64
    numbers = st.floats(width=width, allow_nan=not finite, allow_infinity=not finite)
    return torch.from_numpy(draw(npst.arrays(NUMPY[dtype], draw(shapes), elements=numbers)))


# --- PLAIN


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_plain_keeps_every_bit_of_any_dtype(data):
    dtype = data.draw(st.sampled_from(list(DTYPES.values())))
    shape = data.draw(shapes)
    raw = data.draw(st.binary(min_size=math.prod(shape) * 8, max_size=math.prod(shape) * 8))
    array = np.frombuffer(raw[: math.prod(shape) * dtype.itemsize], NUMPY[dtype]).reshape(shape).copy()
    assert bits(through(torch.from_numpy(array), wire.PLAIN)) == array.tobytes()


def test_plain_sends_the_tensor_s_own_memory_and_arrives_in_the_receiver_s():
    tensor = torch.randn(4, 3)
    header, (view,) = describe(tensor, wire.PLAIN)
    assert view.readonly
    tensor[0, 0] = 5.0
    assert np.frombuffer(view, np.float32)[0] == 5.0
    memory = bytearray(view)
    arrived = decode(header, memory)
    assert arrived.data_ptr() == ctypes.addressof(ctypes.c_char.from_buffer(memory))


def test_what_cannot_be_written_to_is_copied_without_a_warning():
    header, (view,) = describe(torch.ones(3), wire.PLAIN)
    sent = bytes(view)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrived = decode(header, sent)
    arrived.zero_()
    assert sent == bytes(view)


# --- any codec


@named
@pytest.mark.parametrize(
    "layout",
    [
        lambda t: t.transpose(0, 2),
        lambda t: t[:, ::2],
        lambda t: t.to(memory_format=torch.channels_last),
        lambda t: t[:1].expand(5, -1, -1, -1),
        lambda t: t.flatten()[::7][:1],
        lambda t: t.clone().requires_grad_(),
        lambda t: torch.nn.Parameter(t).relu(),
    ],
    ids=["transposed", "strided", "channels last", "expanded", "a single number", "leaf", "in a graph"],
)
def test_where_a_tensor_lies_in_memory_does_not_matter(kind, layout):
    tensor = layout(torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0)))
    arrived = through(tensor, kind)
    assert arrived.is_contiguous() and not arrived.requires_grad
    assert torch.equal(arrived, through(tensor.detach().contiguous(), kind))
    assert ((arrived - tensor).abs() <= largest_error(kind, tensor.detach())).all()


@named
@pytest.mark.parametrize("compression", [wire.UNCOMPRESSED, wire.ZSTD])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0), (2, 0, 3), (7,), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_shapes(kind, compression, shape, dtype):
    tensor = torch.randn(shape, dtype=dtype)
    assert torch.equal(through(tensor, kind, compression), through(tensor, kind))


@named
@pytest.mark.parametrize("compression", [wire.UNCOMPRESSED, wire.ZSTD])
def test_the_same_tensor_gives_the_same_bytes(kind, compression):
    tensor = torch.randn(16, 300, generator=torch.Generator().manual_seed(1)).relu()
    first, second = (describe(tensor.clone(), kind, compression) for _ in range(2))
    assert first[0] == second[0]
    assert b"".join(first[1]) == b"".join(second[1])


@named
def test_rows_do_not_know_of_each_other(kind):
    tensor = torch.randn(6, 11) * torch.logspace(-5, 4, 6)[:, None]
    assert torch.equal(through(tensor, kind), torch.cat([through(row[None], kind) for row in tensor]))


@named
@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_are_within_what_is_promised(kind, dtype):
    @given(tensors(dtype))
    @settings(max_examples=150, deadline=None)
    def check(tensor):
        arrived = through(tensor, kind)
        assert arrived.isfinite().all()
        assert ((arrived.double() - tensor.double()).abs() <= largest_error(kind, tensor)).all()

    check()


@named
def test_what_arrived_once_arrives_the_same_again(kind):
    tensor = torch.randn(8, 100, generator=torch.Generator().manual_seed(2))
    once = through(tensor, kind)
    assert torch.allclose(through(once, kind), once, rtol=2**-20, atol=0)
    if kind != wire.INT8:
        assert torch.equal(through(once, kind), once)


# --- FP16 and BF16


def as_bf16(values):
    """The naive way: round the upper half of the bits to nearest, ties to even."""
    found = []
    for value in values.astype(np.float32):
        word = int(value.view(np.uint32))
        if math.isfinite(value):
            below, rest = word >> 16, word & 0xFFFF
            upper = below + (rest > 0x8000 or (rest == 0x8000 and below & 1))
            word = min(upper & 0x7FFF, 0x7F7F) | upper & 0x8000
        else:
            word >>= 16
        found.append(np.uint32(word << 16).view(np.float32))
    return np.array(found, np.float32)


def as_fp16(values):
    clamped = np.where(np.isinf(values), values, np.clip(values, -65504, 65504))
    return clamped.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize(("kind", "oracle"), [(wire.FP16, as_fp16), (wire.BF16, as_bf16)])
def test_halves_are_the_oracle_s(kind, oracle):
    random = np.random.default_rng(0)
    words = random.integers(0, 2**32, 20_000, dtype=np.uint32)
    ties = (random.integers(0, 2**16, 2000, dtype=np.uint32) << 16) | 0x8000
    near = random.uniform(-70_000, 70_000, 4000).astype(np.float32).view(np.uint32)
    ties_of_halves = random.integers(0, 0x7BFF, 2000, dtype=np.uint16).view(np.float16).astype(np.float32)
    step = np.spacing(ties_of_halves.astype(np.float16)).astype(np.float32)
    values = np.concatenate([words.view(np.float32), ties.view(np.float32), near.view(np.float32)])
    values = np.concatenate([values, ties_of_halves + step / 2])
    expected = oracle(values)
    found = through(torch.from_numpy(values), kind).numpy()
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(expected) | np.isnan(expected) & np.signbit(found))


@pytest.mark.parametrize("kind", [wire.FP16, wire.BF16], ids=wire.Codec.Name)
def test_halves_keep_what_is_not_finite_and_only_that(kind):
    tensor = torch.cat([SPECIAL, torch.tensor([LARGEST, -LARGEST, 1e5, -0.0])])
    arrived = through(tensor, kind)
    assert torch.equal(arrived.isnan(), tensor.isnan())
    assert torch.equal(arrived.isinf(), tensor.isinf())
    assert torch.equal(arrived.signbit()[1:], tensor.signbit()[1:])


def test_beyond_the_range_is_the_largest_half():
    assert through(torch.tensor([65504.0, 65520.0, 1e30, -1e5]), wire.FP16).tolist() == [65504] * 3 + [-65504]
    largest = torch.finfo(torch.bfloat16).max
    assert through(torch.tensor([LARGEST, -LARGEST]), wire.BF16).tolist() == [largest, -largest]
    assert through(torch.tensor([1e300, -1e300], dtype=torch.float64), wire.FP16).tolist() == [65504, -65504]


@pytest.mark.parametrize(
    ("kind", "bound", "smallest"), [(wire.FP16, 2**-11, 2**-14), (wire.BF16, 2**-8, 2**-126)]
)
def test_the_relative_error_of_halves(kind, bound, smallest):
    mantissas = 1 + torch.arange(2**16) / 2**16
    for exponent in (smallest, 1.0, 2.0**14):
        values = mantissas * exponent
        relative = ((through(values, kind) - values) / values).abs().double()
        assert 0.98 * bound < relative.max() <= bound
    # Below normal numbers the error is half the smallest step.
    values = torch.linspace(0, 1, 1001) * smallest
    assert (through(values, kind) - values).abs().double().max() <= bound * smallest


def test_small_gradients_survive_bf16_and_not_fp16():
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(4)) * 1e-8
    assert (through(gradient, wire.FP16) == 0).float().mean() > 0.95
    assert torch.allclose(through(gradient, wire.BF16), gradient, rtol=2**-8, atol=0)


# --- INT8


def test_int8_has_a_step_a_row_and_errs_by_half_of_it():
    tensor = (
        torch.randn(32, 5000, generator=torch.Generator().manual_seed(3)) * torch.logspace(-6, 6, 32)[:, None]
    )
    steps = tensor.abs().amax(dim=1, keepdim=True).double() / 127
    errors = (through(tensor, wire.INT8).double() - tensor.double()).abs() / steps
    assert 0.49 < errors.max() <= 0.5 + 2**-16


def test_int8_is_symmetric_and_reaches_both_ends():
    tensor = torch.tensor([[-2.0, 1.0, 0.3], [0.5, -1.0, 1.0]])
    _, (steps, counts) = describe(tensor, wire.INT8)
    assert np.frombuffer(steps, np.float32).tolist() == [np.float32(2) / 127, np.float32(1) / 127]
    assert np.frombuffer(counts, np.int8).tolist() == [-127, 64, 19, 64, -127, 127]
    assert torch.equal(through(-tensor, wire.INT8), -through(tensor, wire.INT8))


def test_int8_rows_of_zeros_and_of_nearly_nothing_and_of_nearly_everything():
    tensor = torch.tensor([[0.0, -0.0], [1e-45, -3e-42], [LARGEST, 1.0], [1.0, 0.0]])
    _, (steps, _) = describe(tensor, wire.INT8)
    assert np.frombuffer(steps, np.float32)[0] == 0
    arrived = through(tensor, wire.INT8)
    assert arrived[0].tolist() == [0, 0]
    assert arrived.isfinite().all()
    assert arrived[2, 0] == pytest.approx(LARGEST, rel=2**-22)


@pytest.mark.parametrize("value", SPECIAL.tolist())
def test_int8_refuses_what_is_not_finite(value):
    tensor = torch.zeros(3, 4)
    tensor[1, 2] = value
    with pytest.raises(WireError, match="INT8 cannot write NaN or infinities") as refusal:
        describe(tensor, wire.INT8)
    assert refusal.value.reason == wire.NOT_FINITE


@pytest.mark.parametrize("scale", [math.nan, math.inf, -1.0])
def test_int8_refuses_scales_that_cannot_be(scale):
    header, (_, counts) = describe(torch.ones(1, 4), wire.INT8)
    with pytest.raises(WireError, match="scale") as refusal:
        decode(header, np.float32(scale).tobytes() + counts)
    assert refusal.value.reason == wire.NOT_FINITE


# --- what cannot be


def test_torch_s_default_dtype_does_not_matter():
    tensors = [torch.ones(3, 0), torch.ones(3, 2)]
    sent = [b"".join(describe(tensor, kind)[1]) for tensor in tensors for kind in EVERY]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        again = [b"".join(describe(tensor, kind)[1]) for tensor in tensors for kind in EVERY]
    finally:
        torch.set_default_dtype(before)
    assert again == sent


def test_dtypes_that_have_no_name_on_the_wire():
    with pytest.raises(InputError, match=r"torch\.bool cannot be sent"):
        describe(torch.ones(2, dtype=torch.bool), wire.PLAIN)


@pytest.mark.parametrize("kind", LOSSY, ids=wire.Codec.Name)
def test_whole_numbers_are_written_plain_or_not_at_all(kind):
    with pytest.raises(WireError, match="cannot write INT64"):
        describe(torch.ones(2, dtype=torch.int64), kind)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ([-1], wire.FLOAT32, wire.PLAIN),
        ([2, -(2**63)], wire.FLOAT32, wire.INT8),
        ([1] * 9, wire.FLOAT32, wire.PLAIN),
        ([2**62] * 100_000, wire.FLOAT32, wire.PLAIN),
        ([2], 0, wire.PLAIN),
        ([2], 99, wire.PLAIN),
        ([2], wire.FLOAT32, 0),
        ([2], wire.FLOAT32, -7),
    ],
    ids=lambda value: str(value)[:20],
)
def test_tensors_that_cannot_be_have_no_size(shape, dtype, kind):
    with pytest.raises(WireError):
        expected_bytes(shape, dtype, kind)


@given(
    st.lists(st.integers(0, 2**62), max_size=8),
    st.sampled_from(list(DTYPES)),
    st.sampled_from(EVERY),
)
@settings(max_examples=100, deadline=None)
def test_sizes_do_not_overflow(shape, dtype, kind):
    if dtype == wire.INT64 and kind != wire.PLAIN:
        return
    size = expected_bytes(shape, dtype, kind)
    assert size >= math.prod(shape)
    assert size <= 8 * math.prod(shape) + 4 * (shape[0] if shape else 1)


@named
def test_bytes_that_are_too_few_or_too_many(kind):
    header, data = describe(torch.randn(3, 5), kind)
    sent = b"".join(data)
    for wrong in (b"", sent[:-1], sent + b"\0"):
        with pytest.raises(WireError, match="bytes") as refusal:
            decode(header, wrong)
        assert refusal.value.reason == wire.MALFORMED


def test_a_compression_that_is_unknown():
    with pytest.raises(WireError, match="compression 9"):
        decode(wire.Tensor(dtype=wire.FLOAT32, shape=[1], codec=wire.PLAIN, compression=9), bytes(4))


@given(
    st.builds(
        wire.Tensor,
        dtype=st.integers(0, 5),
        shape=st.lists(st.integers(-1, 6), max_size=4),
        codec=st.integers(0, 6),
        compression=st.integers(0, 3),
    ),
    st.binary(max_size=200),
)
@settings(max_examples=300, deadline=None)
def test_bytes_are_a_tensor_or_refused(header, data):
    with contextlib.suppress(WireError):
        assert list(decode(header, data).shape) == header.shape


@pytest.mark.parametrize(("enum", "known"), [(wire.Dtype, DTYPES), (wire.Codec, CODECS)])
def test_every_codec_of_the_protocol_is_implemented(enum, known):
    missing = [name for name, value in enum.items() if value not in known]
    assert all("UNKNOWN" in name for name in missing)
