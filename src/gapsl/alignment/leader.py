"""Leader gradient identification (LGI): the devices that agree, and the mean of their gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gapsl.alignment.geometry import mean_of_rows, nonzero_rows, pairwise_angles

RESOLUTION = 1e-9  # radians; scores nearer than this are equal, and so is a dispersion's range


@dataclass(frozen=True)
class Leader:
    """What LGI found in one round; indices are rows of the gradients it was given."""

    scores: Tensor  # theta_i, Eq. (1): mean angle to the others, float64, radians
    dispersion: float  # nu, their population standard deviation
    ratio: float  # K_t, Eq. (2)
    members: tuple[int, ...]  # the devices the leader is made of, Eq. (3)
    gradient: Tensor  # g_lead, Eq. (4)
    spread: tuple[float, float]  # running minimum and maximum of nu, for the next round
    angles: Tensor  # theta_ij, all pairs


def identify_leader(
    gradients: Tensor,
    *,
    round: int,
    total_rounds: int,
    k_min: float,
    k_max: float,
    spread: tuple[float, float] | None = None,
) -> Leader:
    """Find the leader gradient of a round (Algorithm 1) in a tensor (S, d) of the devices' gradients.

    Rounds count from 1. `spread` is what the previous round returned, None in the first.
    """
    if gradients.dim() != 2 or len(gradients) == 0:
        raise ValueError(f"gradients must be a tensor (S, d) with S >= 1, not {tuple(gradients.shape)}")
    angles = pairwise_angles(gradients)
    scores = consistency_scores(angles)
    dispersion = float(scores.std(correction=0))
    lowest, highest = spread if spread is not None else (dispersion, dispersion)
    spread = (min(lowest, dispersion), max(highest, dispersion))
    ratio = selection_ratio(
        dispersion, spread, round=round, total_rounds=total_rounds, k_min=k_min, k_max=k_max
    )
    members = select(scores, ratio, nonzero=nonzero_rows(gradients))
    return Leader(scores, dispersion, ratio, members, mean_of_rows(gradients, members), spread, angles)


def consistency_scores(angles: Tensor) -> Tensor:
    """Return theta_i of Eq. (1): each row's mean angle to all others; 0 for a device alone."""
    return angles.sum(dim=1) / max(1, len(angles) - 1)


def selection_ratio(
    dispersion: float,
    spread: tuple[float, float],
    *,
    round: int,
    total_rounds: int,
    k_min: float,
    k_max: float,
) -> float:
    """Return K_t of Eq. (2), a fraction in [k_min, k_max]."""
    if not 0 < k_min <= k_max <= 1:
        raise ValueError(f"need 0 < k_min <= k_max <= 1, not k_min={k_min}, k_max={k_max}")
    if not 1 <= round <= total_rounds:
        raise ValueError(f"rounds count from 1 to total_rounds={total_rounds}, not {round}")
    lowest, highest = spread
    stability = (highest - dispersion) / (highest - lowest) if highest - lowest > RESOLUTION else 0.0
    return k_min + round / total_rounds * stability * (k_max - k_min)


def select(scores: Tensor, ratio: float, *, nonzero: Tensor) -> tuple[int, ...]:
    """Return the ceil(ratio * S) devices with the lowest scores, Eq. (3), in ascending order.

    Ties go to the lower device. A zero gradient has no direction and leads only where all are zero.
    """
    count = max(1, math.ceil(ratio * len(scores) - RESOLUTION))
    candidates = nonzero.nonzero().flatten()
    if len(candidates) == 0:
        candidates = torch.arange(len(scores), device=scores.device)
    ranks = torch.round(scores[candidates] / RESOLUTION)
    order = candidates[torch.argsort(ranks, stable=True)]
    return tuple(sorted(int(i) for i in order[:count]))
