"""The built-in models that are chains of layers: VGG-16, a small CNN and a perceptron."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from torch import nn

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.models.cut import CutError, Split, cut_chain

POOL = 0
CONFIGURATION_D = (64, 64, POOL, 128, 128, POOL, *(256,) * 3, POOL, *((512,) * 3 + (POOL,)) * 2)

# Four channels or more share a group: a group of one channel on a 1×1 map would normalise to zero.
NORMS: dict[str, Callable[[int], list[nn.Module]]] = {
    "none": lambda channels: [],
    "batch": lambda channels: [nn.BatchNorm2d(channels)],
    "group": lambda channels: [nn.GroupNorm(math.gcd(32, channels // 4), channels)],
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
        """Return the parts on either side of this cut."""
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


def norm_of(norm: str, channels: int) -> list[nn.Module]:
    """Return the normalisation with this name for so many channels (a multiple of 8), if it is one."""
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


def vgg16(classes: int, input_shape: tuple[int, ...], width: float = 1.0, norm: str = "none") -> Staged:
    """Build VGG-16; cut k falls after the k-th convolution, its norm, its ReLU and the pool if one follows.

    The indices in `features` are those of torchvision's vgg16, or of its vgg16_bn if there is a norm.
    Its 4096-wide head would make up nine tenths of every gradient, so ours goes straight to the classes.
    """
    channels, height, breadth = image_shape(input_shape, "vgg16")
    if min(height, breadth) < 32:
        raise InputError(
            f"vgg16 halves an image five times, so it needs 32×32 pixels or more, not {height}×{breadth}; "
            "use the model 'small', or larger images"
        )
    features: list[nn.Module] = []
    stops: list[str] = []
    for size in CONFIGURATION_D:
        if size == POOL:
            features.append(nn.MaxPool2d(2))
            stops.pop()  # the pool goes with the convolution before it
        else:
            following = scaled(size, width)
            features += [nn.Conv2d(channels, following, 3, padding=1), *norm_of(norm, following)]
            features.append(nn.ReLU())  # not in place: at a cut it would overwrite what the device sent
            channels = following
        stops.append(f"features.{len(features) - 1}")
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        features=nn.Sequential(*features),
        avgpool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        classifier=nn.Sequential(nn.Linear(channels, classes)),
    )
    model = Staged(layers, tuple(stops), "convolution")
    initialise(model)
    return model


def small(
    classes: int, input_shape: tuple[int, ...], width: float = 1.0, norm: str = "none", dropout: float = 0.0
) -> Staged:
    """Build a CNN of three stages for images from 8×8 digits to 32×32 photographs; cut k after stage k."""
    channels, *size = image_shape(input_shape, "small")
    if min(size) < 4:
        raise InputError(
            f"small needs images of 4×4 pixels or more, not {size[0]}×{size[1]}; use the model 'mlp'"
        )
    stages = []
    for base in (16, 32, 64):
        following = scaled(base, width)
        stage: OrderedDict[str, nn.Module] = OrderedDict(conv=nn.Conv2d(channels, following, 3, padding=1))
        stage.update(("norm", layer) for layer in norm_of(norm, following))
        stage["relu"] = nn.ReLU()
        if min(size) >= 4:  # a smaller map has no detail to spare
            stage["pool"] = nn.MaxPool2d(2)
            size = [side // 2 for side in size]
        if checked_dropout(dropout) > 0:
            stage["dropout"] = nn.Dropout(dropout)
        stages.append(nn.Sequential(stage))
        channels = following
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stages=nn.Sequential(*stages),
        avgpool=nn.AdaptiveAvgPool2d(2),
        flatten=nn.Flatten(),
        classifier=nn.Linear(4 * channels, classes),
    )
    model = Staged(layers, tuple(f"stages.{k}" for k in range(3)), "stage")
    initialise(model)
    return model


def mlp(classes: int, input_shape: tuple[int, ...], width: float = 1.0, dropout: float = 0.0) -> Staged:
    """Build a perceptron of two hidden layers for inputs of any shape; cut k after hidden layer k.

    GELU, not ReLU, makes it smooth: its second derivatives can be checked by finite differences.
    """
    inputs = math.prod(input_shape)
    hidden = []
    for base in (64, 32):
        following = scaled(base, width)
        layer: OrderedDict[str, nn.Module] = OrderedDict(linear=nn.Linear(inputs, following), gelu=nn.GELU())
        if checked_dropout(dropout) > 0:
            layer["dropout"] = nn.Dropout(dropout)
        hidden.append(nn.Sequential(layer))
        inputs = following
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        flatten=nn.Flatten(), hidden=nn.Sequential(*hidden), head=nn.Linear(inputs, classes)
    )
    return Staged(layers, tuple(f"hidden.{k}" for k in range(2)), "hidden layer")
