"""Numbers by seed: paired differences, Student's t intervals, rank correlations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from scipy import stats

Values = Mapping[int, float]  # by seed

ENOUGH = 3  # seeds that an interval is computed from
LEVEL = 0.95


def minus(first: Values, second: Values) -> Values:
    """Return the differences for the seeds that both have."""
    return {seed: first[seed] - second[seed] for seed in sorted(set(first) & set(second))}


def mean(values: Values) -> float | None:
    """Return the mean over seeds, None if there are none."""
    return statistics.fmean(values.values()) if values else None


def deviation(values: Values) -> float | None:
    """Return the sample standard deviation over seeds, None for fewer than two."""
    return statistics.stdev(values.values()) if len(values) > 1 else None


def interval(values: Values) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean by Student's t; None for too few seeds."""
    if len(values) < ENOUGH:
        return None
    numbers = list(values.values())
    half = stats.t.ppf((1 + LEVEL) / 2, len(numbers) - 1) * stats.sem(numbers)
    centre = statistics.fmean(numbers)
    return float(centre - half), float(centre + half)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three pairs or where one never changes."""
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(stats.spearmanr(first, second).statistic)
