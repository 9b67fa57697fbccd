"""Numbers by seed: their mean and spread, and how far two sets are apart, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from gapsl_reproduction.report.student import quantile

Values = Mapping[int, float]  # by seed

ENOUGH = 3  # seeds that an interval is computed from
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with its sample standard deviation, None for one seed."""

    mean: float
    std: float | None
    seeds: int


def estimate(values: Values) -> Estimate | None:
    """Return mean and spread of numbers by seed, None if there are none."""
    numbers = list(values.values())
    if not numbers:
        return None
    std = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Estimate(statistics.fmean(numbers), std, len(numbers))


def minus(first: Values, second: Values) -> Values:
    """Return the differences for the seeds that both have."""
    return {seed: first[seed] - second[seed] for seed in sorted(set(first) & set(second))}


def interval(values: Values) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean by Student's t; None for too few seeds."""
    found = estimate(values)
    if found is None or found.std is None or found.seeds < ENOUGH:
        return None
    half = quantile((1 + LEVEL) / 2, found.seeds - 1) * found.std / found.seeds**0.5
    return found.mean - half, found.mean + half
