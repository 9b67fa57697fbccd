"""GDA (Algorithm 2): angles to the leader, the adaptive threshold, and who stays within it."""

import math

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_leader import COSINE_ERROR, DTYPES, angle_error, gradient_rows, lead

from gapsl.alignment import align, angles_to, identify_leader, keep_within

etas = st.floats(-3, 3)
angle_lists = st.lists(st.floats(0, math.pi), min_size=1, max_size=8)


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=gradient_rows(), eta=etas)
@settings(max_examples=100, deadline=None)
def test_angles_threshold_and_kept_are_the_oracle_s(dtype, rows, eta):
    gradients = torch.tensor(rows, dtype=dtype)
    leader = lead(rows, dtype).gradient
    found = align(gradients, leader, eta=eta)
    assert found.angles.dtype == torch.float64
    for row, got in zip(gradients.tolist(), found.angles.tolist(), strict=True):
        assert math.cos(got) == pytest.approx(oracle.cosine(row, leader.tolist()), abs=COSINE_ERROR[dtype])
    assert found.threshold == pytest.approx(oracle.threshold(found.angles.tolist(), eta), abs=1e-14)
    assert found.kept == oracle.kept(found.angles.tolist(), found.threshold)


@given(angle_lists, etas)
@settings(max_examples=100, deadline=None)
def test_the_threshold_lies_between_zero_and_a_right_angle(angles, eta):
    rows = torch.tensor([[math.cos(a), math.sin(a)] for a in angles], dtype=torch.float64)
    found = align(rows, torch.tensor([1.0, 0.0], dtype=torch.float64), eta=eta)
    assert 0 <= found.threshold <= math.pi / 2
    assert found.threshold == pytest.approx(oracle.threshold(angles, eta), abs=1e-7)
    assert found.kept  # somebody always is


@given(angle_lists, st.floats(0, math.pi))
@settings(max_examples=100, deadline=None)
def test_within_a_threshold_or_else_the_nearest(angles, threshold):
    found = keep_within(torch.tensor(angles, dtype=torch.float64), threshold)
    assert found.kept == oracle.kept(angles, threshold)


def test_an_angle_at_the_threshold_is_kept_up_to_a_nanoradian():
    angles = torch.tensor([0.5, 0.5 + 0.9e-9, 0.5 + 1.1e-9], dtype=torch.float64)
    assert keep_within(angles, 0.5).kept == (0, 1)


def test_if_nobody_is_within_the_threshold_all_the_nearest_are_kept():
    angles = torch.tensor([2.0, 1.8, 1.8, 2.5], dtype=torch.float64)
    assert keep_within(angles, 0.0).kept == (1, 2)


def test_nobody_is_within_a_right_angle_of_a_leader_all_oppose():
    # The cap at pi/2 is what leaves nobody here: the mean angle is beyond it.
    rows = torch.tensor([[-1.0, 0.2], [-1.0, 0.5], [-1.0, -0.1]], dtype=torch.float64)
    found = align(rows, torch.tensor([1.0, 0.0], dtype=torch.float64), eta=0.0)
    assert found.threshold == math.pi / 2
    assert found.kept == (1,)


def test_a_larger_eta_keeps_fewer():
    rows = torch.randn(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leader = rows[:6].mean(dim=0)
    sizes = [len(align(rows, leader, eta=eta).kept) for eta in (-2, -1, 0, 0.5, 1, 2)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(1, 13), st.sampled_from([1, 3, 17, 50, 101, 4097]), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_identical_gradients_are_all_kept(dtype, count, size, seed):
    rows = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=dtype).repeat(count, 1)
    leader = identify_leader(rows, round=1, total_rounds=1, k_min=0.3, k_max=0.3).gradient
    assert align(rows, leader, eta=0.5).kept == tuple(range(count))


def test_of_two_opposite_gradients_the_leader_alone_is_kept():
    found = align(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.tensor([1.0, 2.0]), eta=0.5)
    assert found.angles.tolist() == pytest.approx([0, math.pi], abs=angle_error(torch.float32))
    assert found.kept == (0,)


def test_where_opposites_cancel_the_zero_leader_is_at_right_angles_to_all():
    found = align(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.zeros(2), eta=0.5)
    assert found.angles.tolist() == [math.pi / 2] * 2
    assert found.kept == (0, 1)


def test_a_zero_gradient_is_at_a_right_angle_to_the_leader():
    found = align(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([1.0, 0.0]), eta=0.0)
    assert found.angles.tolist() == [0.0, math.pi / 2]
    assert found.kept == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=gradient_rows(least=2), which=st.integers(0, 6), power=st.integers(-60, 60))
@settings(max_examples=50, deadline=None)
def test_scaling_a_gradient_changes_no_angle_to_the_leader(dtype, rows, which, power):
    gradients = torch.tensor(rows, dtype=dtype)
    leader = lead(rows, dtype).gradient
    scaled = gradients.clone()
    scaled[which % len(rows)] *= 2.0**power
    before, after = angles_to(gradients, leader).cos(), angles_to(scaled, leader * 2.0**-power).cos()
    assert torch.allclose(before, after, rtol=0, atol=COSINE_ERROR[dtype])


@given(gradient_rows(least=2), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_permuting_the_devices_permutes_their_angles(rows, order):
    shuffled = list(range(len(rows)))
    order.shuffle(shuffled)
    gradients = torch.tensor(rows, dtype=torch.float64)
    leader = lead(rows).gradient
    plain, moved = align(gradients, leader, eta=0.5), align(gradients[shuffled], leader, eta=0.5)
    near = angle_error(torch.float64)
    assert moved.angles.tolist() == pytest.approx(plain.angles[shuffled].tolist(), abs=near)
    if all(abs(a - plain.threshold) > 2 * near for a in plain.angles.tolist()):
        assert sorted(shuffled[i] for i in moved.kept) == list(plain.kept)


@pytest.mark.parametrize(("rows", "leader"), [((0, 3), (3,)), ((2, 3), (4,)), ((3,), (3,))])
def test_shapes_that_do_not_fit_are_refused(rows, leader):
    with pytest.raises(ValueError, match="leader"):
        align(torch.zeros(rows), torch.zeros(leader), eta=0.5)
