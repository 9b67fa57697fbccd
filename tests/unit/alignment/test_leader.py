"""LGI (Algorithm 1) is what SPEC says, over whatever gradients hypothesis can think of."""

import math
from itertools import pairwise

import oracle
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gapsl.alignment import consistency_scores, identify_leader, pairwise_angles, selection_ratio
from gapsl.alignment.geometry import BLOCK, PIECE, nonzero_rows, products_of_pairs
from gapsl.alignment.leader import select

# An error e in a cosine is an error up to sqrt(2e) in an angle near 0 or pi, and e / sin elsewhere.
COSINE_ERROR = {torch.float64: 4e-15, torch.float32: 2e-6}
DTYPES = [torch.float32, torch.float64]


def angle_error(dtype):
    return math.sqrt(2 * COSINE_ERROR[dtype])


@st.composite
def gradient_rows(draw, least=1, most=7):
    """Rows with everything that makes trouble: repeats, multiples, opposites, zeros."""
    count, size = draw(st.integers(least, most)), draw(st.integers(1, 6))
    number = st.floats(-4, 4).map(lambda x: round(x, 2))
    rows = []
    for _ in range(count):
        kind = draw(st.sampled_from(["new", "new", "new", "zero", "same", "double", "opposite"]))
        if kind == "zero":
            rows.append([0.0] * size)
        elif kind == "new" or not rows:
            rows.append(draw(st.lists(number, min_size=size, max_size=size)))
        else:
            factor = {"same": 1.0, "double": 2.0, "opposite": -1.0}[kind]
            rows.append([factor * x for x in draw(st.sampled_from(rows))])
    return rows


ratios = st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(lambda pair: (min(pair), max(pair)))


def lead(rows, dtype=torch.float64, t=1, total=1, k_min=0.2, k_max=0.8, spread=None):
    gradients = torch.tensor(rows, dtype=dtype)
    return identify_leader(gradients, round=t, total_rounds=total, k_min=k_min, k_max=k_max, spread=spread)


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=gradient_rows(), ks=ratios)
@settings(max_examples=100, deadline=None)
def test_every_quantity_of_a_round_is_the_oracle_s(dtype, rows, ks):
    gradients = torch.tensor(rows, dtype=dtype)
    found = identify_leader(gradients, round=3, total_rounds=4, k_min=ks[0], k_max=ks[1], spread=(0.05, 0.7))
    expected = oracle.leader_round(
        gradients.double().numpy(), t=3, total=4, k_min=ks[0], k_max=ks[1], spread=(0.05, 0.7)
    )
    near = angle_error(dtype)
    assert found.scores.dtype == torch.float64
    assert found.scores.tolist() == pytest.approx(expected["scores"], abs=near)
    assert found.dispersion == pytest.approx(expected["dispersion"], abs=near)
    assert found.spread == pytest.approx(expected["spread"], abs=near)
    # Each later step is exact, given what the step before it found.
    lowest, highest = found.spread
    assert (lowest, highest) == (min(0.05, found.dispersion), max(0.7, found.dispersion))
    assert found.ratio == pytest.approx(
        oracle.ratio(found.dispersion, lowest, highest, 3, 4, *ks), rel=1e-14, abs=0
    )
    nonzero = [any(row) for row in gradients.tolist()]
    assert found.members == oracle.members(found.scores.tolist(), found.ratio, nonzero)
    precision = torch.finfo(dtype).eps
    assert found.gradient.dtype == dtype
    assert found.gradient.tolist() == pytest.approx(
        oracle.mean(gradients.tolist(), found.members), rel=4 * precision, abs=40 * precision
    )


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=gradient_rows())
@settings(max_examples=100, deadline=None)
def test_pairwise_angles_are_the_oracle_s_and_symmetric_to_the_bit(dtype, rows):
    gradients = torch.tensor(rows, dtype=dtype)
    angles = pairwise_angles(gradients)
    assert angles.dtype == torch.float64
    assert torch.equal(angles, angles.T)
    assert not angles.diagonal().any()
    for i in range(len(rows)):
        for j in range(i):
            expected = oracle.cosine(gradients[i].tolist(), gradients[j].tolist())
            assert math.cos(angles[i, j]) == pytest.approx(expected, abs=COSINE_ERROR[dtype])


@pytest.mark.parametrize(("rows", "size"), [(BLOCK + 3, 5), (2 * BLOCK, 40), (3, PIECE + 7)])
def test_many_or_long_gradients_are_multiplied_by_blocks(rows, size):
    gradients = torch.randn(rows, size, generator=torch.Generator().manual_seed(0))
    exact = gradients.double() @ gradients.double().T
    found = products_of_pairs(gradients)
    assert torch.equal(found, found.T)
    assert torch.allclose(found, exact, rtol=0, atol=1e-6 * float(exact.max()))


@given(st.lists(gradient_rows(), min_size=2, max_size=6), ratios)
@settings(max_examples=60, deadline=None)
def test_over_rounds_in_sequence_the_spread_carries_the_extremes(rounds, ks):
    spread, expected, seen = None, None, []
    for t, rows in enumerate(rounds, start=1):
        found = lead(rows, t=t, total=len(rounds), k_min=ks[0], k_max=ks[1], spread=spread)
        wanted = oracle.leader_round(rows, t=t, total=len(rounds), k_min=ks[0], k_max=ks[1], spread=expected)
        seen.append(found.dispersion)
        spread, expected = found.spread, wanted["spread"]
        assert spread == (min(seen), max(seen))
        assert spread == pytest.approx(expected, abs=angle_error(torch.float64))
        assert ks[0] <= found.ratio <= ks[1] * (1 + 1e-15)


def test_in_the_first_round_the_ratio_is_k_min():
    assert lead([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.3]], t=1, total=1, k_min=0.3, k_max=0.9).ratio == 0.3


@pytest.mark.parametrize(("width", "expected"), [(1e-9, 0.2), (1.1e-9, 0.8)])
def test_a_range_up_to_a_nanoradian_counts_as_none(width, expected):
    # The least dispersed round so far, in the last round: the fraction is 1 as soon as it counts.
    found = selection_ratio(0.0, (0.0, width), round=5, total_rounds=5, k_min=0.2, k_max=0.8)
    assert found == pytest.approx(expected, rel=1e-15)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 50), st.integers(0, 50), ratios)
@settings(max_examples=100, deadline=None)
def test_the_ratio_grows_with_the_rounds_and_with_agreement(a, b, nu, t, more, ks):
    lowest, highest = min(a, b, nu), max(a, b, nu)
    found = selection_ratio(nu, (lowest, highest), round=t, total_rounds=t + more, k_min=ks[0], k_max=ks[1])
    assert found == pytest.approx(oracle.ratio(nu, lowest, highest, t, t + more, *ks), rel=1e-14)


@given(gradient_rows(), st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_with_k_min_equal_to_k_max_nothing_else_matters(rows, k):
    early = lead(rows, t=1, total=9, k_min=k, k_max=k)
    late = lead(rows, t=9, total=9, k_min=k, k_max=k, spread=(0.0, 2.0))
    assert early.ratio == late.ratio == k
    assert early.members == late.members


@given(st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=200, deadline=None)
def test_a_share_that_is_a_whole_number_of_devices_is_not_rounded_up(count, part):
    """0.1 * 30 is 3.0000000000000004 in floats, and 3 devices to everybody else."""
    part = min(part, count)
    rows = torch.randn(count, 3, generator=torch.Generator().manual_seed(count)).tolist()
    assert len(lead(rows, k_min=part / count, k_max=part / count).members) == part


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=gradient_rows(least=2), order=st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_permuting_the_devices_permutes_the_scores_and_the_leaders(dtype, rows, order):
    shuffled = list(range(len(rows)))
    order.shuffle(shuffled)
    plain, moved = lead(rows, dtype), lead([rows[i] for i in shuffled], dtype)
    near = angle_error(dtype)
    assert moved.scores.tolist() == pytest.approx(plain.scores[shuffled].tolist(), abs=near)
    assert moved.dispersion == pytest.approx(plain.dispersion, abs=near)
    ranks = sorted(plain.scores.tolist())
    if min((b - a for a, b in pairwise(ranks)), default=1) > 2 * near:  # no ties
        assert sorted(shuffled[i] for i in moved.members) == list(plain.members)


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=gradient_rows(least=2), which=st.integers(0, 6), power=st.integers(-60, 60))
@example(rows=[[1.0, 2.0], [2.0, -1.0], [1.0, 1.0]], which=0, power=-100)
@example(rows=[[1.0, 2.0], [2.0, -1.0], [1.0, 1.0]], which=0, power=100)
@settings(max_examples=60, deadline=None)
def test_scaling_a_gradient_changes_no_angle(dtype, rows, which, power):
    gradients = torch.tensor(rows, dtype=dtype)
    scaled = gradients.clone()
    scaled[which % len(rows)] *= 2.0**power
    assert torch.allclose(
        pairwise_angles(scaled).cos(), pairwise_angles(gradients).cos(), rtol=0, atol=COSINE_ERROR[dtype]
    )


def test_ties_go_to_the_lower_device():
    # Four at right angles to one another: all scores are equal.
    assert lead(torch.eye(4).tolist(), k_min=0.5, k_max=0.5).members == (0, 1)


def test_scores_nearer_than_a_nanoradian_tie():
    scores = [0.5 + 4e-10, 0.5, 0.5 + 3e-10]
    angles = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 0]], dtype=torch.float64)
    for i, score in enumerate(scores):
        angles[i, (i + 1) % 3] = 2 * score
    assert consistency_scores(angles).tolist() == pytest.approx(scores, rel=1e-15)
    nonzero = torch.ones(3, dtype=torch.bool)
    assert select(torch.tensor(scores, dtype=torch.float64), 0.3, nonzero=nonzero) == (0,)
    assert select(torch.tensor([0.5 + 4e-9, 0.5], dtype=torch.float64), 0.5, nonzero=nonzero[:2]) == (1,)


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(0, 10**6), st.sampled_from([3, 17, 257, 4099]))
@settings(max_examples=40, deadline=None)
def test_two_devices_have_equal_scores_and_no_dispersion(dtype, seed, size):
    rows = torch.randn(2, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    found = identify_leader(rows, round=1, total_rounds=1, k_min=0.5, k_max=0.5)
    assert found.scores[0] == found.scores[1]
    assert found.dispersion == 0.0
    assert found.members == (0,)


def test_one_device_is_its_own_leader():
    found = lead([[3.0, -4.0]])
    assert found.members == (0,)
    assert found.gradient.tolist() == [3.0, -4.0]
    assert found.scores.tolist() == [0.0]
    assert found.dispersion == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(2, 13), st.integers(1, 300), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_identical_gradients_have_no_dispersion_and_the_lowest_ids_lead(dtype, count, size, seed):
    row = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    found = identify_leader(row.repeat(count, 1), round=1, total_rounds=1, k_min=0.4, k_max=0.4)
    assert found.dispersion <= 1e-9
    assert found.members == tuple(range(math.ceil(0.4 * count - 1e-9)))


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(3, 13), st.sampled_from([3, 17, 101, 4097]), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_two_devices_with_one_gradient_tie_wherever_they_stand(dtype, count, size, seed):
    rows = torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    rows[-1] = rows[0]
    scores = identify_leader(rows, round=1, total_rounds=1, k_min=0.4, k_max=0.4).scores
    assert abs(scores[0] - scores[-1]) < 1e-9


def test_opposite_gradients_are_at_pi():
    found = lead([[1.0, 2.0], [-2.0, -4.0]])
    assert found.scores.tolist() == pytest.approx([math.pi] * 2, abs=angle_error(torch.float64))


@given(gradient_rows(least=2), ratios)
@settings(max_examples=100, deadline=None)
def test_a_zero_gradient_never_leads_unless_all_are_zero(rows, ks):
    found = lead(rows, k_min=ks[0], k_max=ks[1])
    if any(any(row) for row in rows):
        assert all(any(rows[i]) for i in found.members)
    # k = min(k, number of non-zero gradients)
    able = sum(any(row) for row in rows) or len(rows)
    assert len(found.members) == min(max(1, math.ceil(found.ratio * len(rows) - 1e-9)), able)


def test_a_zero_gradient_does_not_lead_even_with_the_lowest_score():
    # Two opposite pairs are at 2/3 of pi from one another on average; the zero one is at pi/2 to all.
    rows = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    found = lead(rows, k_min=0.2, k_max=0.2)
    assert found.scores.argmin() == 0
    assert found.members == (1,)


def test_where_all_are_zero_the_leader_is_zero_and_everything_at_right_angles():
    found = lead([[0.0, 0.0]] * 3, k_min=0.5, k_max=0.5)
    assert found.members == (0, 1)
    assert not found.gradient.any()
    assert found.scores.tolist() == pytest.approx([math.pi / 2] * 3, rel=1e-15)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_gradients_whose_squares_leave_float32_still_have_angles(scale):
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]) * scale
    expected = [[0, 45, 90], [45, 0, 45], [90, 45, 0]]
    assert torch.allclose(pairwise_angles(rows), torch.tensor(expected).double().deg2rad(), atol=1e-6)


@pytest.mark.parametrize(("k_min", "k_max"), [(0.0, 0.5), (0.6, 0.5), (0.5, 1.1), (math.nan, 0.5)])
def test_ratios_outside_their_range_are_refused(k_min, k_max):
    with pytest.raises(ValueError, match="k_min"):
        lead([[1.0]], k_min=k_min, k_max=k_max)


@pytest.mark.parametrize("t", [0, 6])
def test_rounds_outside_the_schedule_are_refused(t):
    with pytest.raises(ValueError, match="rounds"):
        lead([[1.0]], t=t, total=5)


@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 3, 4)])
def test_what_is_no_matrix_of_gradients_is_refused(shape):
    with pytest.raises(ValueError, match="gradients"):
        identify_leader(torch.zeros(shape), round=1, total_rounds=1, k_min=0.5, k_max=0.5)


def test_the_gradients_given_are_left_as_they_are():
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    before = rows.clone()
    identify_leader(rows, round=1, total_rounds=1, k_min=0.5, k_max=0.5).gradient.zero_()
    assert torch.equal(rows, before)


def test_rows_whose_squares_vanish_are_not_zero():
    rows = torch.tensor([[0.0, 0.0], [0.0, 1e-30], [1.0, 0.0], [float("nan"), 0.0], [3e38, 3e38]])
    assert nonzero_rows(rows).tolist() == rows.any(dim=1).tolist() == [False, True, True, True, True]
