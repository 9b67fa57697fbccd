"""Whether numbers are as somebody says: yes, no, or not to be told from so few seeds.

An interval decides where there are enough seeds. With fewer, a margin on either side of the mean stands for
it.
"""

from __future__ import annotations

from enum import Enum

from gapsl_reproduction.report.spread import Values, estimate, interval

MARGIN = 2.0  # points (or degrees) on either side of a mean with fewer seeds than an interval takes


class State(Enum):
    """What became of one thing that a claim comes down to."""

    SO = "yes"
    NOT_SO = "no"
    UNDECIDED = "undecided"
    UNJUDGED = "not judged"  # it says nothing at this scale, whatever the numbers
    MISSING = "not measured"

    @classmethod
    def of(cls, so: bool) -> State:
        """Return the state of something that needs no interval."""
        return cls.SO if so else cls.NOT_SO

    @property
    def judged(self) -> bool:
        """Whether there is something to say."""
        return self not in (State.UNJUDGED, State.MISSING)


def span(values: Values, margin: float) -> tuple[float, float] | None:
    """Return between what the mean is taken to be; None without values."""
    found = estimate(values)
    if found is None:
        return None
    return interval(values) or (found.mean - margin, found.mean + margin)


def above_zero(values: Values, margin: float = MARGIN) -> State:
    """Say whether a mean is above zero."""
    found = span(values, margin)
    if found is None:
        return State.MISSING
    low, high = found
    return State.SO if low > 0 else State.NOT_SO if high <= 0 else State.UNDECIDED


def at_least(values: Values, limit: float, margin: float = MARGIN) -> State:
    """Say whether a mean is not below a limit."""
    found = span(values, margin)
    if found is None:
        return State.MISSING
    low, high = found
    return State.SO if low >= limit else State.NOT_SO if high < limit else State.UNDECIDED


def at_most(values: Values, limit: float, margin: float = MARGIN) -> State:
    """Say whether a mean is not above a limit."""
    return at_least({seed: -value for seed, value in values.items()}, -limit, margin)


def within(values: Values, limit: float, margin: float = MARGIN) -> State:
    """Say whether a mean is no further from zero than a limit."""
    found = span(values, margin)
    if found is None:
        return State.MISSING
    low, high = found
    if -limit <= low and high <= limit:
        return State.SO
    return State.NOT_SO if high < -limit or low > limit else State.UNDECIDED
