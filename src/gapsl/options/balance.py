"""Class balance: rare classes count as much in the server's loss as frequent ones.

Devices contribute equally many samples per round, however much data they have, and some classes live on few
of them: what the server sees is not what it is tested on. Weighting each sample by the inverse share of
its class puts that right, with counts the server has anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_SHARE = 1e-3  # a class rarer than this is not made up for in full: a handful of samples would rule


def class_shares(counts: Iterable[Sequence[int]]) -> Tensor:
    """Return each class's share of what devices send, all devices contributing equally: (C,)."""
    found = torch.tensor([list(c) for c in counts], dtype=torch.float64)
    return (found / found.sum(dim=1, keepdim=True).clamp_min(1)).mean(dim=0)


class BalancedCrossEntropy:
    """The cross-entropy with samples weighted by the inverse share of their class, 1 on average."""

    def __init__(self, counts: Iterable[Sequence[int]]) -> None:
        shares = class_shares(counts)
        weights = 1 / shares.clamp_min(SMALLEST_SHARE)
        self.weights = weights / (weights * shares).sum()

    def __call__(self, logits: Tensor, labels: Tensor, device: int) -> Tensor:
        """Return the weighted mean of a device's batch; its weights need not add up to the batch's size."""
        each = F.cross_entropy(logits, labels, reduction="none")
        return (each * self.weights.to(logits)[labels]).mean()
