"""VGG-16 with torchvision's parameter names and a small head, for images of 32×32 and more."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from gapsl.common.errors import InputError
from gapsl.models.layers import Staged, image_shape, initialise, norm_of, scaled

POOL = 0
CONFIGURATION_D = (64, 64, POOL, 128, 128, POOL, *(256,) * 3, POOL, *((512,) * 3 + (POOL,)) * 2)


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
            normalisation = norm_of(norm, following)
            features.append(nn.Conv2d(channels, following, 3, padding=1))
            features += [normalisation] if normalisation is not None else []
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
