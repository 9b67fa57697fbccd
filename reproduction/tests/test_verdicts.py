"""Statistics and the claim engine: intervals decide, one seed decides nothing, being first takes all."""

from __future__ import annotations

import pytest
from gapsl_reproduction.report.frame import Evidence
from gapsl_reproduction.report.numbers import interval, minus, rank_correlation, signed, spread, told
from gapsl_reproduction.report.verdicts import (
    Claim,
    Part,
    State,
    Verdict,
    above_zero,
    at_least,
    at_most,
    judge,
    verdict_of,
    within,
)
from gapsl_reproduction.scales import STANDARD

SO, NOT_SO, UNDECIDED, MISSING = State.SO, State.NOT_SO, State.UNDECIDED, State.MISSING
STEADY = {0: 3.0, 1: 3.0, 2: 3.0}  # the interval is a point
SPREAD = {0: 1.0, 1: 2.0, 2: 3.0}  # the interval is −0.5 to 4.5
EMPTY = Evidence(STANDARD, lambda key: None)


def negative(values: dict[int, float]) -> dict[int, float]:
    return {seed: -value for seed, value in values.items()}


def test_an_interval_is_that_of_a_table_of_students_t() -> None:
    assert interval(SPREAD) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), rel=1e-4)
    assert interval({0: 1.0, 1: 9.0}) is None, "two seeds are too few"
    assert interval(STEADY) == (3.0, 3.0)


def test_differences_are_paired_by_seed() -> None:
    assert minus({0: 5.0, 1: 7.0, 2: 1.0}, {2: 4.0, 1: 5.0, 7: 0.0}) == {1: 2.0, 2: -3.0}


def test_ranks() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 25, 90]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_numbers_in_words() -> None:
    assert signed(-1.25) == "−1.2" and signed(0.04) == "+0.0" and signed(-0.04) == "+0.0"
    assert told(SPREAD) == "+2.0 (−0.5 to +4.5; 3 seeds)"
    assert told({0: 1.0, 1: 3.0}) == "+2.0 (+1.0, +3.0; 2 seeds)"
    assert told({4: 1.0}, "°") == "+1.0° (1 seed)"
    assert told({}) == "not measured"
    assert spread(SPREAD) == "2.0 ± 1.0 (3)" and spread({0: 2.0}) == "2.0 (1)" and spread({}) == "–"


def test_intervals_decide() -> None:
    assert above_zero(STEADY) is SO
    assert above_zero({0: 0.1, 1: 0.1, 2: 0.1}) is SO, "small, but the same with every seed"
    assert above_zero(negative(STEADY)) is NOT_SO
    assert above_zero(SPREAD) is above_zero(negative(SPREAD)) is UNDECIDED, "the interval has zero in it"
    assert above_zero({0: 0.0, 1: 0.0, 2: 0.0}) is NOT_SO, "the same is not above"
    assert at_least(STEADY, 3.0) is SO, "not below"
    assert at_least(STEADY, 3.1) is NOT_SO
    assert at_least(SPREAD, -0.4) is UNDECIDED, "its mean is 2, but the interval begins at −0.5"
    assert at_most(STEADY, 3.0) is SO and at_most(STEADY, 2.9) is NOT_SO
    assert within(STEADY, 3.0) is within(negative(STEADY), 3.0) is SO
    assert within(STEADY, 2.9) is within(negative(STEADY), 2.9) is NOT_SO
    assert within(SPREAD, 2.0) is UNDECIDED


@pytest.mark.parametrize("values", [{0: 50.0}, {0: 50.0, 1: 50.0}, {0: -50.0}])
def test_few_seeds_decide_nothing(values: dict[int, float]) -> None:
    assert (
        above_zero(values)
        is at_least(values, 1.0)
        is at_most(values, 1.0)
        is within(values, 1.0)
        is UNDECIDED
    )


def test_no_seed_is_not_measured() -> None:
    assert above_zero({}) is at_least({}, 1.0) is at_most({}, 1.0) is within({}, 1.0) is MISSING


@pytest.mark.parametrize(
    ("states", "verdict", "first"),
    [
        ([SO, SO], Verdict.HOLDS, Verdict.HOLDS),
        ([SO, NOT_SO], Verdict.PART, Verdict.NOT),
        ([SO, UNDECIDED], Verdict.PART, Verdict.UNDECIDED),
        ([SO, MISSING], Verdict.PART, Verdict.UNDECIDED),
        ([NOT_SO, UNDECIDED], Verdict.NOT, Verdict.NOT),
        ([NOT_SO, MISSING], Verdict.NOT, Verdict.NOT),
        ([UNDECIDED, MISSING], Verdict.UNDECIDED, Verdict.UNDECIDED),
        ([MISSING, MISSING], Verdict.MISSING, Verdict.MISSING),
        ([], Verdict.MISSING, Verdict.MISSING),
    ],
)
def test_what_parts_come_to(states: list[State], verdict: Verdict, first: Verdict) -> None:
    assert verdict_of(states) is verdict
    assert verdict_of(states, first=True) is first, "to be first takes all comparisons, one no refutes it"


def test_so_far_is_said_where_more_runs_could_change_it() -> None:
    def words(*states: State, first: bool = False) -> str:
        claim = Claim("", lambda evidence: [Part("", state) for state in states], first=first)
        return judge(claim, EMPTY).words

    assert words(SO, MISSING) == "holds in part (so far)"
    assert words(NOT_SO, MISSING) == "does not hold (so far)"
    assert words(NOT_SO, MISSING, first=True) == "does not hold"
    assert words(SO, SO) == "holds" and words(UNDECIDED, MISSING) == "undecided"
