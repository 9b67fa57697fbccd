"""Means, paired differences and their intervals, against hand computations; rank correlation likewise."""

from __future__ import annotations

from math import sqrt

import pytest
from gapsl_reproduction.report.ranks import rank_correlation, ranks
from gapsl_reproduction.report.spread import Estimate, estimate, interval, minus
from gapsl_reproduction.report.student import central, quantile


@pytest.mark.parametrize(
    ("freedom", "printed"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (120, 1.9799)],
)
def test_quantiles_are_those_of_printed_tables(freedom: int, printed: float) -> None:
    assert quantile(0.975, freedom) == pytest.approx(printed, abs=5e-5)
    assert central(quantile(0.975, freedom), freedom) == pytest.approx(0.95)


def test_quantiles_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile(0.4, 3)
    with pytest.raises(ValueError, match="no quantile"):
        quantile(0.975, 0)


def test_mean_and_spread() -> None:
    assert estimate({}) is None
    assert estimate({4: 2.5}) == Estimate(2.5, None, 1)
    found = estimate({0: 1.0, 1: 3.0})
    assert found is not None and found.std is not None
    assert (found.mean, found.seeds) == (2.0, 2)
    assert found.std == pytest.approx(sqrt(2))


def test_differences_are_of_the_same_seeds_alone() -> None:
    assert minus({0: 5.0, 1: 7.0, 3: 9.0}, {1: 4.0, 0: 4.0, 2: 100.0}) == {0: 1.0, 1: 3.0}
    assert minus({0: 1.0}, {1: 1.0}) == {}


def test_a_paired_interval_is_the_one_computed_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t(2) = 4.302653, so 2 ± 4.302653 / sqrt(3)."""
    differences = minus({0: 51.0, 1: 54.0, 2: 60.0}, {0: 50.0, 1: 52.0, 2: 57.0})
    found = interval(differences)
    assert found is not None
    assert found == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)


def test_fewer_than_three_seeds_have_no_interval() -> None:
    assert interval({}) is None
    assert interval({0: 1.0}) is None
    assert interval({0: 1.0, 1: 2.0}) is None


def test_ranks_share_what_equals_share() -> None:
    assert ranks([30.0, 10.0, 20.0]).tolist() == [3, 1, 2]
    assert ranks([5.0, 1.0, 5.0, 9.0]).tolist() == [2.5, 1, 2.5, 4]


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3], [10, 100, 1000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 * (1 + 1) / (4 * 15)
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 2, 3], [5, 5, 5]) == 0
