"""What the convolutional models have in common: widths, norms, initial weights, image shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest

# Four channels or more share a group: a group of one channel on a 1×1 map would normalise to zero.
NORMS: dict[str, Callable[[int], nn.Module | None]] = {
    "none": lambda channels: None,
    "batch": lambda channels: nn.BatchNorm2d(channels),
    "group": lambda channels: nn.GroupNorm(math.gcd(32, channels // 4), channels),
}


def scaled(channels: int, width: float) -> int:
    """Return a number of channels times the width, rounded to a multiple of 8 and at least 8."""
    if not (math.isfinite(width) and width > 0):
        raise InputError(
            f"width is {width}, but it multiplies the channels: give a positive number, like 0.25"
        )
    return max(8, 8 * math.floor(channels * width / 8 + 0.5))


def norm_of(norm: str, channels: int) -> nn.Module | None:
    """Return the normalisation with this name for so many channels (a multiple of 8), or None."""
    if norm not in NORMS:
        raise InputError(f"unknown norm {norm!r}; {nearest(norm, NORMS)}")
    return NORMS[norm](channels)


def image_shape(input_shape: tuple[int, ...], model: str) -> tuple[int, int, int]:
    """Return the shape as (channels, height, width), or refuse what is no image."""
    if len(input_shape) != 3:
        raise InputError(
            f"{model} takes images of shape (channels, height, width), not {input_shape}; "
            "reshape the data, or use the model 'mlp', which takes any shape"
        )
    channels, height, width = input_shape
    return channels, height, width


def checked_dropout(dropout: float) -> float:
    """Return a dropout probability, or refuse one that is none."""
    if not 0 <= dropout < 1:
        raise InputError(
            f"dropout is {dropout}, but it is the share of values dropped: give 0 <= dropout < 1"
        )
    return dropout


def initialise(module: nn.Module) -> None:
    """Draw the weights as torchvision's VGG does: Kaiming in convolutions, normal 0.01 in the head."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, 0, 0.01)
        else:
            continue
        if part.bias is not None:
            nn.init.zeros_(part.bias)
