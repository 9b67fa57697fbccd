"""Label skew: how different the devices' labels are, as numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Distances beyond what chance gives devices of these sizes. Among 10 devices with the digits, Dirichlet(0.1)
# is at 0.55 and PSL's devices end 38 points below what they know together, Dirichlet(0.5) at 0.33 and 17
# points, Dirichlet(0.9) at 0.26 and 12, Dirichlet(3) at 0.1 and 4, as with labels dealt at random.
STRONG = 0.3
MILD = 0.15


def distances(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each device's total-variation distance from the pooled labels: 0 the same, 1 disjoint."""
    proportions = counts / counts.sum(axis=1, keepdims=True)
    pooled = counts.sum(axis=0) / counts.sum()
    return np.asarray(np.abs(proportions - pooled).sum(axis=1) / 2)


def chance_distance(counts: NDArray[np.int64]) -> float:
    """Return the mean distance if labels were dealt at random: small devices never match exactly.

    A class of share q among n draws is off by sqrt(2 q (1 - q) / (pi n)) on average (normal limit).
    """
    pooled = counts.sum(axis=0) / counts.sum()
    spread = np.sqrt(2 / np.pi * pooled * (1 - pooled)).sum() / 2
    return float((spread / np.sqrt(counts.sum(axis=1))).mean())


def effective_classes(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many equally frequent classes each device's labels are worth: exp of their entropy."""
    proportions = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(proportions, out=np.zeros_like(proportions), where=proportions > 0)
    return np.asarray(np.exp(-(proportions * logs).sum(axis=1)))


def excess_distance(counts: NDArray[np.int64]) -> float:
    """Return how much further the devices' labels are from the pooled ones than chance explains."""
    return float(distances(counts).mean()) - chance_distance(counts)
