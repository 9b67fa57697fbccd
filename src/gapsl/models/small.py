"""Two models small enough for a demonstration, a unit test or a table of numbers."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from gapsl.common.errors import InputError
from gapsl.models.layers import Staged, checked_dropout, image_shape, initialise, norm_of, scaled


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
        normalisation = norm_of(norm, following)
        if normalisation is not None:
            stage["norm"] = normalisation
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
