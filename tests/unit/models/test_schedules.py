"""Learning rates by round, and the epoch at which a run had converged."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapsl.models.part import OptimizerConfig
from gapsl.run.evaluation import converged_epoch


def rates(schedule, rounds=6, **options):
    rate = OptimizerConfig(lr=0.1, schedule=schedule, **options).rate(rounds)
    return [rate(t) for t in range(1, rounds + 1)]


def test_constant_is_constant():
    assert rates("constant") == [0.1] * 6


def test_linear_falls_in_equal_steps_from_the_whole_rate():
    assert rates("linear") == pytest.approx([0.1 * k / 6 for k in (6, 5, 4, 3, 2, 1)], rel=1e-14)


def test_cosine_falls_from_the_whole_rate_and_is_half_way_down_in_the_middle():
    found = rates("cosine")
    assert found == pytest.approx([0.05 * (1 + math.cos(math.pi * k / 6)) for k in range(6)], rel=1e-14)
    assert found[3] == pytest.approx(0.05, rel=1e-14)


def test_step_drops_by_its_factor_every_so_many_rounds():
    found = rates("step", step_every=2, step_factor=0.5)
    assert found == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025], rel=1e-14)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "step"])
def test_warm_up_climbs_to_the_rate_and_then_the_schedule_begins(schedule):
    found = rates(schedule, rounds=8, warmup=3, step_every=2, step_factor=0.5)
    assert found[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1], rel=1e-14)
    assert found[3:] == pytest.approx(rates(schedule, rounds=5, step_every=2, step_factor=0.5), rel=1e-14)


@given(st.sampled_from(["constant", "linear", "cosine", "step"]), st.integers(1, 50), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_the_rate_is_above_zero_in_every_round(schedule, rounds, warmup):
    found = rates(schedule, rounds, warmup=warmup)
    assert all(0 < rate <= 0.1 for rate in found)


def naive(points):
    """Converged epoch over accuracies in thousandths, in whole numbers: nothing is rounded."""
    windows = [points[max(0, i - 2) : i + 1] for i in range(len(points))]
    smooth = [sum(w) * 6 // len(w) for w in windows]  # over 1, 2 or 3: sixths are whole
    best = max(smooth)
    return next(i for i, value in enumerate(smooth) if value >= best - 60)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_converged_is_the_first_smoothed_within_a_point_of_the_best_smoothed(points):
    curve = [(float(i), p / 1000) for i, p in enumerate(points)]
    assert converged_epoch(curve) == naive(points)


def test_exactly_one_point_below_the_best_is_within_it():
    """0.8 - 0.01 is 0.79 to everybody but a float."""
    late = []
    for best in range(1, 101):
        # Smoothed: a point below the best, the best, the best.
        curve = [(1.0, (best - 1) / 100), (2.0, (best + 1) / 100), (3.0, best / 100)]
        if converged_epoch(curve) != 1.0:
            late.append(best)
    assert late == []


def test_smoothing_keeps_a_lucky_evaluation_from_counting():
    curve = [(1.0, 0.3), (2.0, 0.9), (3.0, 0.3), (4.0, 0.8), (5.0, 0.8), (6.0, 0.8)]
    assert converged_epoch(curve) == 6.0


def test_a_run_that_was_never_evaluated_did_not_converge():
    assert converged_epoch([]) is None
