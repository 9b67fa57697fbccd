"""Gradient direction alignment (GDA): who is close enough to the leader to take part in a round."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from gapsl.alignment.geometry import angles_between

TOLERANCE = 1e-9  # radians; an angle this close above the threshold is within it


@dataclass(frozen=True)
class Alignment:
    """What GDA decided in one round; indices are rows of the gradients it was given."""

    angles: Tensor  # theta_lead,i, Eq. (5), float64, radians
    threshold: float  # theta_th, Eq. (6)
    kept: tuple[int, ...]  # the devices within it


def align(gradients: Tensor, leader: Tensor, *, eta: float) -> Alignment:
    """Keep the devices within the adaptive angular threshold around the leader's gradient (d,)."""
    angles = angles_to(gradients, leader)
    threshold = float(angles.mean() - eta * angles.std(correction=0))
    return keep_within(angles, max(min(threshold, math.pi / 2), 0.0))


def angles_to(gradients: Tensor, leader: Tensor) -> Tensor:
    """Return theta_lead,i of Eq. (5) for every row of gradients (S, d)."""
    if gradients.dim() != 2 or len(gradients) == 0 or leader.shape != gradients.shape[1:]:
        raise ValueError(
            f"need gradients (S, d) and a leader (d,), not {tuple(gradients.shape)} and {tuple(leader.shape)}"
        )
    return angles_between(gradients, leader)


def keep_within(angles: Tensor, threshold: float) -> Alignment:
    """Keep the devices whose angle is within a threshold; if there is none, the nearest."""
    kept = angles <= threshold + TOLERANCE
    if not bool(kept.any()):
        kept = angles <= angles.min() + TOLERANCE
    return Alignment(angles, threshold, tuple(int(i) for i in kept.nonzero().flatten()))
