"""When a run had converged."""

from __future__ import annotations

from collections.abc import Sequence

WINDOW = 3  # evaluations an accuracy is smoothed over
MARGIN = 0.01  # within one point of the best counts as there
ROUNDING = 1e-9  # one point below is within one point


def converged_epoch(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the first epoch whose smoothed accuracy is within a point of the best smoothed one.

    The curve is (epoch, accuracy) by evaluation; smoothing takes each with the two before it.
    """
    if not curve:
        return None
    smooth = []
    for end in range(1, len(curve) + 1):
        window = [accuracy for _, accuracy in curve[max(0, end - WINDOW) : end]]
        smooth.append(sum(window) / len(window))
    best = max(smooth)
    return next(
        epoch for (epoch, _), value in zip(curve, smooth, strict=True) if value >= best - MARGIN - ROUNDING
    )
