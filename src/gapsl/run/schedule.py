"""Learning rates as pure functions of the round, so that nothing has to be stored to resume."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Schedule = Literal["constant", "cosine", "linear", "step"]


def learning_rate(
    base: float,
    schedule: Schedule,
    *,
    total_rounds: int,
    warmup: int = 0,
    step_every: int = 100,
    step_factor: float = 0.1,
) -> Callable[[int], float]:
    """Return the learning rate by round (from 1): a linear warm-up, then the schedule."""

    def rate(round: int) -> float:
        if round <= warmup:
            return base * round / (warmup + 1)
        done = (round - warmup - 1) / max(1, total_rounds - warmup)
        if schedule == "cosine":
            return base * (1 + math.cos(math.pi * done)) / 2
        if schedule == "linear":
            return base * (1 - done)
        if schedule == "step":
            return base * float(step_factor ** ((round - warmup - 1) // step_every))
        return base

    return rate
