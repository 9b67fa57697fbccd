"""A dataset ready for training: its samples, its classes and how to normalise them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gapsl.common.errors import InputError
from gapsl.common.streams import global_stream
from gapsl.data.samples import Samples

# How many rows of each part a fingerprint reads: 6 MB of CIFAR, some 10 ms.
FINGERPRINT_ROWS = 2048


@dataclass(frozen=True, eq=False)
class Source:
    """Training and test samples of one dataset, with what is known about them."""

    name: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of inputs scaled to [0, 1]
    std: tuple[float, ...]
    augment: str = "none"  # the augmentation used unless the user names another
    described: bool = False  # there are no samples, only what they would look like

    def __post_init__(self) -> None:
        for part, samples in (("train", self.train), ("test", self.test)):
            if len(samples) == 0:
                raise InputError(f"{self.name}: the {part} part has no samples; give at least one")
            wrong = (samples.labels < 0) | (samples.labels >= len(self.classes))
            if bool(wrong.any()):
                index = int(wrong.nonzero()[0])
                raise InputError(
                    f"{self.name}: {part} sample {index} has label {int(samples.labels[index])}, but there "
                    f"are {len(self.classes)} classes (0 to {len(self.classes) - 1}); correct the label or "
                    "name all the classes"
                )
        channels = self.input_shape[0]
        if not len(self.mean) == len(self.std) == channels or min(self.std) <= 0:
            raise InputError(
                f"{self.name}: inputs have {channels} channels, but mean is {self.mean} and std {self.std}; "
                "give one mean and one positive std per channel"
            )

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input: channels, height, width for an image; any other for other things."""
        shape = tuple(self.train.read(torch.tensor([0])).shape[1:])
        if not shape:
            raise InputError(
                f"{self.name}: one input is a single number; give a tensor of shape (features,) or more, "
                "for example (1, 28, 28) for a grey image"
            )
        return shape

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 that changes with the data, by which a stored run knows what it was trained on.

        It covers all labels and every k-th input, k such that at most 2,048 inputs of each part are
        read: enough to tell datasets, orders and versions apart, not to prove that no pixel changed.
        """
        return _fingerprint(self.train, self.test)

    @cached_property
    def train_fingerprint(self) -> str:
        """The same of the training part alone, by which a saved partition knows what it divides."""
        return _fingerprint(self.train)


def _fingerprint(*parts: Samples) -> str:
    digest = hashlib.sha256()
    for samples in parts:
        step = -(-len(samples) // FINGERPRINT_ROWS)
        with global_stream(0, "fingerprint"):  # for datasets that transform at random
            rows = samples.read(torch.arange(0, len(samples), step)).contiguous()
        digest.update(f"{len(samples)} {tuple(rows.shape)} {rows.dtype}\n".encode())
        digest.update(samples.labels.numpy().astype("<i8").tobytes())
        digest.update(np.ascontiguousarray(rows.view(torch.uint8).numpy()).tobytes())
    return digest.hexdigest()
