"""Server steps that some bad devices cannot steer: gradients clipped, or their centre by coordinate.

The coordinate-wise median and trimmed mean are those of Yin et al., "Byzantine-robust distributed learning"
(ICML 2018). Clipping to the median length needs no threshold of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from gapsl.models.part import length_of

Robust = Literal["none", "clip", "median", "trimmed"]
COLUMNS = 1 << 18  # sorted at a time: sorting takes three times the memory of what it sorts


def clipped(rows: Tensor) -> Tensor:
    """Return the rows (S, d), those longer than the median length shortened to it; a new tensor."""
    lengths = [length_of(row) for row in rows]
    longest = median(lengths)
    found = rows.clone()
    for row, length in zip(found, lengths, strict=True):
        if length > longest:
            row.mul_(longest / length)
    return found


def center(rows: Tensor, trim: float | None = None) -> Tensor:
    """Return the median of the rows (S, d) by coordinate; with `trim`, their mean without the extremes.

    So large a share of the values, rounded down, is left out at either end.
    """
    out = trimmed_count(len(rows), trim) if trim is not None else (len(rows) - 1) // 2
    found = torch.empty_like(rows[0])
    for begin in range(0, len(found), COLUMNS):
        part = slice(begin, begin + COLUMNS)
        ordered = rows[:, part].sort(dim=0).values
        found[part] = ordered[out : len(rows) - out].mean(dim=0)
    return found


def trimmed_count(devices: int, trim: float) -> int:
    """Return how many of so many devices are left out at either end of every coordinate."""
    return int(trim * devices + 1e-9)


def typical(rows: Tensor, members: Sequence[int], robust: Robust, trim: float) -> Tensor:
    """Return the centre of some rows, by the estimator of this name."""
    chosen = rows if len(members) == len(rows) else rows[list(members)]
    return center(chosen, trim if robust == "trimmed" else None)
