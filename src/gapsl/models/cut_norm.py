"""Normalisation at the cut: what a device sends of a sample has mean 0 and variance 1."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from gapsl.models.cut import Split


def normalise_at_cut(halves: Split) -> Split:
    """Let the device's half normalise each sample's activations over all of them, without a parameter.

    It is a hook and no layer, so that parameters keep their names, whatever kind of module the half is.
    """
    halves.device.register_forward_hook(_normalised)
    return halves


def _normalised(half: nn.Module, inputs: tuple[Tensor, ...], activations: Tensor) -> Tensor:
    """Return the activations with mean 0 and variance 1 in every row, in the memory order they came in."""
    return F.group_norm(activations, 1)
