"""Real handwritten digits, 8×8, that come with the package: scikit-learn's, from UCI."""

from __future__ import annotations

from importlib import resources

import numpy as np

from gapsl.data.places import Places
from gapsl.data.samples import ArraySamples
from gapsl.data.source import Source

# Of the training part, pixels scaled from 0..16 to [0, 1].
MEAN, STD = (0.3054,), (0.3761,)


def load_digits(places: Places, argument: str = "") -> Source:
    """Return the embedded digits: 1,437 to train on, 360 to test on, the split stored with them."""
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
