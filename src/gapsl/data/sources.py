"""The datasets that can be asked for by name, among them the embedded digits."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import torch

from gapsl.common.errors import InputError
from gapsl.common.registry import Registry
from gapsl.data.benchmarks import load_cifar10, load_cifar100, load_fashion_mnist
from gapsl.data.download import Places, Progress
from gapsl.data.image_folder import load_folder
from gapsl.data.samples import ArraySamples, Source

# A loader gets the search folders and what follows the colon of its name ("" if it has none).
Loader = Callable[[Places, str], Source]

SOURCES: Registry[Loader] = Registry("dataset", group="gapsl.datasets")

HOW = "write described:SHAPE:CLASSES, for example described:3x32x32:cat,dog,other"


def load_source(
    name: str,
    *,
    data_dir: str | Path | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Source:
    """Return the dataset of this name, from this machine if its files are here, else downloaded."""
    key, colon, argument = name.partition(":")
    places = Places(Path(data_dir).expanduser() if data_dir is not None else None, download, progress)
    return SOURCES[key + colon](places, argument)


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
        mean=(0.3054,),  # of the training part, pixels scaled from 0..16 to [0, 1]
        std=(0.3761,),
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


SOURCES.register("digits", load_digits)
SOURCES.register("fashion-mnist", load_fashion_mnist)
SOURCES.register("cifar10", load_cifar10, aliases=["cifar-10"])
SOURCES.register("cifar100", load_cifar100, aliases=["cifar-100"])
SOURCES.register("described:", load_described)  # a name with a colon takes an argument
SOURCES.register("folder:", load_folder)
