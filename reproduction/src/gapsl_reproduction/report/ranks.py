"""Rank correlation: whether what is larger in one respect is larger in another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the rank of each value, the mean rank for equal ones."""
    array = np.asarray(values, dtype=float)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    equal = (array[None, :] == array[:, None]).sum(axis=1)
    return np.asarray(below + (equal + 1) / 2, dtype=np.float64)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's coefficient, 0 where one side is constant and tells nothing; None below 3 pairs."""
    if len(first) < 3:
        return None
    own, other = ranks(first), ranks(second)
    if own.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(own, other)[0, 1])
