"""Numbers over seeds: mean, spread, and paired differences with Student's t intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

Values = Mapping[int, float]  # by seed
LEVEL = 0.95  # of intervals


@dataclass(frozen=True)
class Difference:
    """How much more one group has than another, over the seeds that both have."""

    mean: float
    low: float | None  # the 95 % interval; None with fewer than two pairs
    high: float | None
    pairs: int


def mean(values: Values) -> float | None:
    """Return the mean over seeds, None if there are none."""
    return statistics.fmean(values.values()) if values else None


def deviation(values: Values) -> float | None:
    """Return the sample standard deviation over seeds, None for fewer than two."""
    return statistics.stdev(values.values()) if len(values) > 1 else None


def paired_difference(first: Values, second: Values) -> Difference | None:
    """Return first minus second, pair by pair of equal seeds; None if there is no pair."""
    pairs = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    if not pairs:
        return None
    centre = statistics.fmean(pairs)
    if len(pairs) < 2:
        return Difference(centre, None, None, 1)
    half = t_quantile(len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return Difference(centre, centre - half, centre + half, len(pairs))


def t_quantile(freedom: int) -> float:
    """Return the t within ±which Student's distribution has 95 %, to nine digits."""
    low, high = 0.0, 1.0
    while t_share(high, freedom) < LEVEL:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_share(middle, freedom) < LEVEL else (low, middle)
    return high


def t_share(t: float, freedom: int) -> float:
    """Return the share of Student's distribution within ±t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if odd and freedom == 1 else term
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
