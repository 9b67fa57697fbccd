"""A dataset that is somewhere else: what its samples look like, for a server whose devices have them all."""

from __future__ import annotations

import torch

from gapsl.common.errors import InputError
from gapsl.data.places import Places
from gapsl.data.samples import ArraySamples
from gapsl.data.source import Source

HOW = "write described:SHAPE:CLASSES, for example described:3x32x32:cat,dog,other"


def load_described(places: Places, argument: str) -> Source:
    """Return a source without samples, from the shape of an input and the names of the classes.

    Inputs are normalised from [0, 1] to [-1, 1] on every device.
    """
    shape_text, _, names = argument.partition(":")
    try:
        shape = tuple(int(size) for size in shape_text.split("x"))
    except ValueError:
        raise InputError(f"{shape_text!r} is no shape; {HOW}") from None
    classes = tuple(name.strip() for name in names.split(",") if name.strip())
    if len(classes) < 2 or len(set(classes)) != len(classes) or min(shape) < 1:
        raise InputError(f"{argument!r} does not describe data of two classes or more; {HOW}")
    nothing = ArraySamples(torch.zeros(1, *shape, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
    half = (0.5,) * shape[0]
    return Source(f"described:{shape_text}", nothing, nothing, classes, half, half, described=True)
