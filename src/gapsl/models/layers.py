"""What the built-in models have in common: numbered cuts, widths, norms, initial weights, image shapes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from torch import nn

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.models.cut import CutError, Split, cut_chain

# Four channels or more share a group: a group of one channel on a 1×1 map would normalise to zero.
NORMS: dict[str, Callable[[int], nn.Module | None]] = {
    "none": lambda channels: None,
    "batch": lambda channels: nn.BatchNorm2d(channels),
    "group": lambda channels: nn.GroupNorm(math.gcd(32, channels // 4), channels),
}


class Staged(nn.Sequential):
    """A chain with stops: cut k falls after the layer named `stops[k - 1]`.

    Dotted names cut it too, like every other chain.
    """

    def __init__(self, layers: OrderedDict[str, nn.Module], stops: tuple[str, ...], stage: str) -> None:
        super().__init__(layers)
        self.stops = stops
        self.stage = stage  # what a stage is called in messages, for example "convolution"

    def cut(self, at: int | str) -> Split:
        """Return the halves on either side of this cut."""
        if isinstance(at, str):
            return cut_chain(self, at)
        if isinstance(at, bool) or not 1 <= at <= len(self.stops):
            raise CutError(
                f"there is no cut {at}: a cut falls after {self.stage} 1 to {len(self.stops)}; "
                f"or name the device's last layer, for example {self.stops[0]!r}"
            )
        return cut_chain(self, self.stops[at - 1])


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
