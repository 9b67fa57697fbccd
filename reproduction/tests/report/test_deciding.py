"""Whether a mean is above something: so, refuted, or undecided, by its interval or by a margin."""

from __future__ import annotations

from gapsl_reproduction.report.claims import State
from gapsl_reproduction.report.claims.deciding import above_zero, at_least, at_most, span, within
from gapsl_reproduction.report.spread import Values, interval

SO, NOT_SO, UNDECIDED, MISSING = State.SO, State.NOT_SO, State.UNDECIDED, State.MISSING

STEADY = {0: 3.0, 1: 3.0, 2: 3.0}  # the interval is a point
SPREAD = {0: 1.0, 1: 2.0, 2: 3.0}  # the interval is −0.5 to 4.5


def minus(values: Values) -> Values:
    return {seed: -value for seed, value in values.items()}


def test_an_interval_decides_where_there_is_one_and_a_margin_where_not() -> None:
    assert span(SPREAD, 2.0) == interval(SPREAD)
    assert span({0: 5.0}, 2.0) == (3.0, 7.0)
    assert span({0: 4.0, 1: 6.0}, 2.0) == (3.0, 7.0), "two seeds are too few"
    assert span({}, 2.0) is None


def test_above_zero() -> None:
    assert above_zero({}) is MISSING
    assert above_zero(STEADY) is SO
    assert above_zero({0: 0.1, 1: 0.1, 2: 0.1}) is SO, "small, but the same with every seed"
    assert above_zero(minus(STEADY)) is NOT_SO
    assert above_zero(SPREAD) is above_zero(minus(SPREAD)) is UNDECIDED, "the interval has zero in it"
    assert above_zero({0: 0.0, 1: 0.0, 2: 0.0}) is NOT_SO, "the same is not above"


def test_above_zero_with_few_seeds() -> None:
    assert above_zero({0: 2.1}) is SO
    assert above_zero({0: 2.0}) is UNDECIDED, "within the margin"
    assert above_zero({0: -1.9}) is UNDECIDED
    assert above_zero({0: -2.1, 1: -2.1}) is NOT_SO
    assert above_zero({0: 2.1}, margin=3.0) is UNDECIDED


def test_at_least() -> None:
    assert at_least({}, 1.0) is MISSING
    assert at_least(STEADY, 3.0) is SO, "not below"
    assert at_least(STEADY, 3.1) is NOT_SO
    assert at_least(SPREAD, -1.0) is SO
    assert at_least(SPREAD, -0.4) is UNDECIDED, "its mean is 2, but the interval begins at −0.5"
    assert at_least(SPREAD, 4.6) is NOT_SO
    assert at_least({0: 18.1}, 16.0) is SO
    assert at_least({0: 17.0}, 16.0) is UNDECIDED
    assert at_least({0: 13.9}, 16.0) is NOT_SO


def test_at_most_is_the_same_from_above() -> None:
    assert at_most({}, 1.0) is MISSING
    assert at_most(STEADY, 3.0) is SO
    assert at_most(STEADY, 2.9) is NOT_SO
    assert at_most(SPREAD, 4.0) is UNDECIDED
    assert at_most({0: 1.9}, 2.0, margin=0.0) is SO
    assert at_most({0: 2.1}, 2.0, margin=0.0) is NOT_SO


def test_within() -> None:
    assert within({}, 1.0) is MISSING
    assert within(STEADY, 3.0) is within(minus(STEADY), 3.0) is SO
    assert within(STEADY, 2.9) is within(minus(STEADY), 2.9) is NOT_SO
    assert within(SPREAD, 2.0) is within(minus(SPREAD), 2.0) is UNDECIDED


def test_what_is_judged() -> None:
    assert [state for state in State if not state.judged] == [State.UNJUDGED, MISSING]
    assert (State.of(True), State.of(False)) == (SO, NOT_SO)
