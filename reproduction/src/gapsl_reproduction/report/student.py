"""Student's t distribution, for intervals from few seeds."""

from __future__ import annotations

from math import atan, cos, pi, sin, sqrt

PRECISION = 1e-12


def central(t: float, freedom: int) -> float:
    """Return the probability of lying between -t and t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2 == 1
    term = cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 if odd else 0, freedom - 1, 2):
        total += term
        term *= cos(angle) ** 2 * (k + 1) / (k + 2)
    series = sin(angle) * total
    return 2 / pi * (angle + series) if odd else series


def quantile(probability: float, freedom: int) -> float:
    """Return the t below which a share of more than half of the distribution lies."""
    if not 0.5 < probability < 1 or freedom < 1:
        raise ValueError(f"no quantile for {probability} and {freedom} degrees of freedom")
    wanted = 2 * probability - 1
    low, high = 0.0, 1.0
    while central(high, freedom) < wanted:
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if central(middle, freedom) < wanted else (low, middle)
    return high
