"""Many numbers become few without inventing or losing any that a curve shows."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapsl.dashboard.downsample import Buckets, Trace, by_agreement, in_degrees, thinned


@given(rows=st.integers(1, 500), most=st.integers(1, 60))
def test_buckets_have_every_row_once(rows: int, most: int) -> None:
    buckets = Buckets.of(rows, most)
    values = np.arange(rows, dtype=float)
    mean, low, high = buckets.over(values)
    assert len(mean) == min(rows, most)
    sizes = np.diff(buckets.edges)
    assert (sizes > 0).all()
    assert float(mean @ sizes) == pytest.approx(values.sum())
    assert low[0] == 0 and high[-1] == rows - 1
    assert buckets.last(values)[-1] == rows - 1


def test_what_is_not_there_counts_for_nothing() -> None:
    mean, low, high = Buckets.of(4, 2).over(np.array([np.nan, 3.0, np.nan, np.nan]))
    assert mean[0] == low[0] == high[0] == 3
    assert np.isnan([mean[1], low[1], high[1]]).all()
    assert Buckets.of(0, 5).over(np.empty(0))[0].size == 0


def test_a_spike_stays_in_the_band() -> None:
    values = np.zeros(10_000)
    values[5_001] = 7.0
    _, _, high = Buckets.of(10_000, 100).over(values)
    assert high.max() == 7


@given(count=st.integers(0, 300), most=st.integers(2, 50))
def test_thinned_keeps_both_ends(count: int, most: int) -> None:
    found = thinned(range(count), most)
    assert len(found) <= most
    assert not count or (found[0], found[-1]) == (0, count - 1)


def test_a_trace_has_no_more_steps_than_it_may_and_keeps_its_means() -> None:
    trace = Trace(steps=8)
    for t in range(1000):
        trace.add([0, 2], [float(t), 5.0])
    means = trace.means()
    assert means.shape[0] == 3 and means.shape[1] <= 8
    assert (means[2] == 5).all() and np.isnan(means[1]).all()
    assert (np.diff(means[0]) > 0).all()
    assert means[0, 0] == pytest.approx((trace.stride - 1) / 2)


def test_a_device_that_comes_later_is_missing_before() -> None:
    trace = Trace(steps=4)
    trace.add([0], [1.0])
    trace.add([], [])
    trace.add([1], [2.0])
    assert np.array_equal(trace.means(), [[1, np.nan, np.nan], [np.nan, np.nan, 2]], equal_nan=True)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 60])
def test_devices_that_agree_stand_together(size: int) -> None:
    camp = np.arange(size) % 2
    angles = np.where(camp[:, None] == camp[None, :], 0.6, 1.9)
    order = by_agreement(angles)
    assert sorted(order) == list(range(size))
    changes = np.count_nonzero(np.diff(camp[order])) if size else 0
    assert changes <= 1


def test_a_pair_that_was_not_measured_is_taken_for_a_right_angle() -> None:
    assert sorted(by_agreement(np.full((5, 5), np.nan))) == list(range(5))


def test_degrees_are_a_byte_each() -> None:
    found = base64.b64decode(in_degrees(np.array([[np.nan, np.pi / 2], [np.pi, 0.0]])))
    assert list(found) == [255, 90, 180, 0]
