"""Data that a caller brings: datasets, arrays, generators, one of them or two, made into a `Source`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from gapsl.common.errors import InputError
from gapsl.common.streams import numpy_stream
from gapsl.data.partitioners import interleave
from gapsl.data.samples import ArraySamples, DatasetSamples, Indices, Samples, Source

# A dataset, arrays (inputs, labels), an iterable of (input, label), or a pair of any of them (train, test).
GivenData = Source | Dataset[Any] | Iterable[Any]

TEST_FRACTION = 0.2  # of one dataset, where no test part is given
MOST = 10_000_000  # samples that a generator may have: it is read to its end
MOST_CLASSES = 100_000  # where nobody names them: a layer for them has to be made
HOW = (
    "give a torch dataset, arrays (inputs, labels), a generator of (input, label), or a pair (train, test) "
    "of them"
)


class SomeSamples:
    """Some of the samples of another, read when they are asked for."""

    def __init__(self, samples: Samples, indices: NDArray[np.int64]) -> None:
        self._samples, self._indices = samples, torch.from_numpy(indices)
        self.labels = samples.labels[self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, indices: Indices) -> Tensor:
        """Return the raw inputs at these indices."""
        return self._samples.read(self._indices[torch.as_tensor(indices)])


def as_source(data: Any) -> Source:
    """Make a source of what a caller brings; inputs are taken as they are, bytes scaled to [0, 1].

    Of one dataset, a fixed, stratified fifth becomes the test part.
    """
    if isinstance(data, Source):
        return data
    if is_pair(data) and not are_arrays(data):
        train, test = (samples_of(one) for one in data)
        named = data[0]
    else:
        train, test = parted(samples_of(data))
        named = data
    return checked_source(train, test, getattr(named, "classes", None))


def checked_source(train: Samples, test: Samples, named: Any) -> Source:
    """Return a source of two parts that fit each other."""
    highest = max(int(s.labels.max()) if len(s) else 0 for s in (train, test))
    if not named and highest >= MOST_CLASSES:
        raise InputError(
            f"a label is {highest}, which would make {highest + 1} classes; number them from 0 up: "
            "names, labels = numpy.unique(labels, return_inverse=True)"
        )
    classes = tuple(map(str, named)) if named else tuple(str(i) for i in range(highest + 1))
    if len(train) == 0:
        raise InputError("the training dataset is empty; give at least one sample per device")
    first, *others = (tuple(s.read(torch.tensor([0])).shape[1:]) for s in (train, test) if len(s))
    if not first:
        raise InputError("a sample is a single number; give tensors of shape (features,) or more")
    if others and others != [first]:
        raise InputError(f"training samples have shape {first}, test samples {others[0]}; make them agree")
    channels = first[0]
    return Source("custom", train, test, classes, (0.0,) * channels, (1.0,) * channels)


def samples_of(data: Any) -> Samples:
    """Return the samples of one dataset, in whatever form it comes."""
    if is_array(data):
        raise InputError(f"{type(data).__name__}: inputs without labels; {HOW}")
    if are_arrays(data):
        inputs, labels = data
        return ArraySamples(as_inputs(inputs), labels)
    if isinstance(data, tuple | list) and not all(is_sample(one) for one in data[:1]):
        raise InputError(f"a {type(data).__name__} of {len(data)} things that are no samples; {HOW}")
    if isinstance(data, IterableDataset | Iterator):
        return collected(iter(data))
    if isinstance(data, str | bytes | dict) or not hasattr(data, "__getitem__"):
        if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict | set):
            return collected(iter(data))
        raise InputError(f"{type(data).__name__} is no dataset; {HOW}")
    return DatasetSamples(data)


def collected(items: Iterator[Any]) -> Samples:
    """Read a generator of (input, label) pairs to its end, into memory."""
    read = list(islice(items, MOST + 1))
    if len(read) > MOST:
        raise InputError(f"the generator has not ended after {MOST} samples; give one that ends")
    if not read:
        raise InputError("the generator gives nothing; make it anew, it can be read once")
    found = DatasetSamples(read)  # type: ignore[arg-type]  # a list has length and items
    return ArraySamples(found.read(torch.arange(len(found))), found.labels)


def parted(samples: Samples) -> tuple[Samples, Samples]:
    """Return the training and the test part of one dataset: always the same, stratified."""
    count = len(samples)
    if count < 2:
        raise InputError(f"one dataset of {count} samples cannot be parted; give a pair (train, test)")
    order = interleave(samples.labels.numpy(), numpy_stream(0, "own-split"))
    cut = max(1, round(TEST_FRACTION * count))
    return SomeSamples(samples, np.sort(order[cut:])), SomeSamples(samples, np.sort(order[:cut]))


def is_pair(data: Any) -> bool:
    """Say whether this is a train and a test part, and not a list of two samples."""
    return isinstance(data, tuple | list) and len(data) == 2 and not any(is_sample(one) for one in data)


def is_sample(one: Any) -> bool:
    """Say whether this is an (input, label) pair of one sample."""
    return isinstance(one, tuple | list) and len(one) == 2 and is_array(one[0]) and np.ndim(one[1]) == 0


def is_array(data: Any) -> bool:
    """Say whether this is a tensor or a numpy array."""
    return isinstance(data, Tensor | np.ndarray)


def are_arrays(data: Any) -> bool:
    """Say whether this is a dataset as arrays: inputs and labels, a row for each sample."""
    if not isinstance(data, tuple | list) or len(data) != 2 or not is_array(data[0]):
        return False
    inputs, labels = data
    if is_array(labels) and labels.ndim >= 3 and inputs.shape[1:] == labels.shape[1:]:
        raise InputError(f"two arrays of inputs of shape {tuple(inputs.shape)}, and no labels; {HOW}")
    return np.ndim(labels) > 0


def as_inputs(inputs: Any) -> Tensor:
    """Return an array of inputs as a tensor that can be written to."""
    try:
        return inputs if isinstance(inputs, Tensor) else torch.tensor(inputs)
    except TypeError as error:  # of an array of objects
        raise InputError(
            f"inputs are no numbers ({error}); give uint8 (0 to 255) or floating point"
        ) from None
