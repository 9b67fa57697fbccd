"""Data without files: the digits that come with the package, and what is only described."""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch

from gapsl.common.errors import InputError
from gapsl.data.download import Places
from gapsl.data.samples import ArraySamples
from gapsl.data.source import Source

HOW = "write described:SHAPE:CLASSES, for example described:3x32x32:cat,dog,other"
# Of the training part, pixels scaled from 0..16 to [0, 1].
MEAN, STD = (0.3054,), (0.3761,)


def load_digits(places: Places, argument: str = "") -> Source:
    """Return the embedded digits: 1,437 to train on, 360 to test on, as stored with them.

    They are real, handwritten, 8×8: scikit-learn's, from UCI.
    """
    with (
        resources.files("gapsl.data").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        images = stored["images"][:, None].astype(np.float32) / 16
        labels = stored["labels"].astype(np.int64)
        test = stored["test"]
    return Source(
        name="digits",
        train=ArraySamples(images[~test], labels[~test]),
        test=ArraySamples(images[test], labels[test]),
        classes=tuple("0123456789"),
        mean=MEAN,
        std=STD,
    )


def load_described(places: Places, argument: str) -> Source:
    """Return a source without samples, from the shape of an input and the names of the classes.

    It is for a server whose devices have all the data. They normalise inputs from [0, 1] to [-1, 1].
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
