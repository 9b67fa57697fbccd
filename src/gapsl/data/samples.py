"""Labelled inputs, held in memory or read on demand, and a dataset (`Source`) that is ready for training."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from gapsl.common.errors import InputError
from gapsl.common.streams import global_stream

# How many rows of each part a fingerprint reads: 6 MB of CIFAR, some 10 ms.
FINGERPRINT_ROWS = 2048

Indices = Tensor | NDArray[np.int64]


class Samples(Protocol):
    """What training asks of data: every label at hand, and the raw inputs at some indices.

    Raw inputs are uint8 (0 to 255) or floating point (taken as they are).
    """

    @property
    def labels(self) -> Tensor:
        """The labels of all samples, int64 of shape (N,)."""

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> Tensor:
        """Return the raw inputs at these indices, stacked along a new first dimension."""


class ArraySamples:
    """Samples in one tensor."""

    def __init__(self, inputs: Tensor | NDArray[Any], labels: Tensor | NDArray[Any]) -> None:
        self.inputs = torch.as_tensor(inputs)
        self.labels = _as_labels(labels)
        check_kind(self.inputs, "the inputs")
        if len(self.inputs) != len(self.labels):
            raise InputError(
                f"{len(self.inputs)} inputs but {len(self.labels)} labels; give exactly one label per input"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Indices) -> Tensor:
        """Return the raw inputs at these indices."""
        return self.inputs.index_select(0, torch.as_tensor(indices))  # 6 times as fast as inputs[indices]


class DatasetSamples:
    """Samples of any map-style dataset whose items are (tensor, integer label) pairs.

    Labels come from the dataset's `targets` or `labels` where it has them; otherwise every item is read
    once. They are compared with the items' own labels on every read, because a `target_transform`
    makes the two differ and a partition by the wrong labels would go unnoticed.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset
        try:
            self._length = len(dataset)  # type: ignore[arg-type]
        except TypeError:
            raise InputError(
                f"{type(dataset).__name__} has no length; give one with __len__ and __getitem__"
            ) from None
        self.labels = self._all_labels()

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Indices) -> Tensor:
        """Return the raw inputs at these indices."""
        inputs: list[Tensor] = []
        for index in torch.as_tensor(indices).tolist():
            item, label = self._item(index)
            if label != int(self.labels[index]):
                raise InputError(
                    f"item {index} has label {label}, but the dataset's list of labels says "
                    f"{int(self.labels[index])}; drop the target_transform, or make both agree"
                )
            if inputs and item.shape != inputs[0].shape:
                raise InputError(
                    f"item {index} has shape {tuple(item.shape)}, others {tuple(inputs[0].shape)}; "
                    "resize them to one shape in the dataset"
                )
            inputs.append(item)
        if not inputs:
            return self._item(0)[0][None][:0]
        return torch.stack(inputs)

    def _all_labels(self) -> Tensor:
        for name in ("targets", "labels"):
            given = getattr(self.dataset, name, None)
            if given is not None:
                labels = _as_labels(given)
                if len(labels) != self._length:
                    raise InputError(
                        f"the dataset has {self._length} items but {len(labels)} {name}; make them agree"
                    )
                return labels
        return torch.tensor([self._item(i)[1] for i in range(self._length)], dtype=torch.int64)

    def _item(self, index: int) -> tuple[Tensor, int]:
        item = self.dataset[index]
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise InputError(f"item {index} is a {type(item).__name__}; items must be (tensor, label) pairs")
        inputs, label = item
        if isinstance(inputs, np.ndarray):
            inputs = torch.tensor(inputs)
        if not isinstance(inputs, Tensor):
            raise InputError(
                f"the input of item {index} is a {type(inputs).__name__}; give the dataset a transform that "
                "returns a tensor of shape (channels, height, width)"
            )
        check_kind(inputs, f"item {index}")
        number = _number_of(label)
        if number is None:
            raise InputError(
                f"the label of item {index} is {label!r}; labels must be integers from 0 up, or one-hot"
            )
        return inputs, number


def _number_of(label: Any) -> int | None:
    """Return the class that a label names, a whole number or a row with one 1 and else zeros; else None."""
    try:
        number = int(label)
        return number if number == label else None
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch's, of several numbers in one label
        if not isinstance(label, Tensor | np.ndarray | list | tuple):
            return None
    row = torch.as_tensor(label)
    if row.ndim != 1 or not bool((row == 1).sum() == 1) or not bool((row == 0).sum() == len(row) - 1):
        return None
    return int(row.argmax())


def _as_labels(labels: Any) -> Tensor:
    """Return labels as whole numbers: also of floats that are whole, of one column, and of one-hot rows."""
    try:
        given = torch.as_tensor(labels)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"labels cannot be read ({error}); number them: names, labels = numpy.unique(labels, "
            "return_inverse=True)"
        ) from None
    if given.numel() == 0:
        return torch.zeros(0, dtype=torch.int64)
    said = f"labels are {given.dtype} of shape {tuple(given.shape)}"
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim == 2:
        if not bool(((given == 1).sum(dim=1) == 1).all() and ((given == 0) | (given == 1)).all()):
            raise InputError(
                f"{said}, and not one-hot; give one integer per sample, shape (N,): several classes for one "
                "sample are not supported"
            )
        return given.long().argmax(dim=1)
    whole = given.long() if not given.is_complex() else given
    if given.ndim != 1 or not torch.equal(whole.to(given.dtype), given):
        raise InputError(f"{said}; give one integer per sample, shape (N,): a regression target is no class")
    return whole


def check_kind(inputs: Tensor, what: str) -> None:
    """Refuse numbers of which nobody says how large they may be."""
    if inputs.dtype != torch.uint8 and not inputs.is_floating_point():
        raise InputError(f"{what}: dtype {inputs.dtype}; give uint8 (0 to 255) or floating point")


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
