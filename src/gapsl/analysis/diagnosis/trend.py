"""Where a noisy series starts and where it ends."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

PARTS = 5  # the start and the end are a fifth of the series each
LEAST = 10  # values below which a trend would be noise


def ends(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the medians of the first and the last fifth; None where there are too few values."""
    if len(values) < LEAST:
        return None
    width = len(values) // PARTS
    return statistics.median(values[:width]), statistics.median(values[-width:])
