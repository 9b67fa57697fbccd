"""Data from Python, one dataset or two, in whatever form: the same samples, or a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset

import gapsl
from gapsl.common.errors import InputError
from gapsl.data import Source, from_python
from gapsl.data.from_python import as_source

INPUTS = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(50) % 5


class Streamed(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(INPUTS, LABELS, strict=True)


def contents(source: Source) -> list[Tensor]:
    parts = (source.train, source.test)
    return [tensor for part in parts for tensor in (part.read(torch.arange(len(part))), part.labels)]


FORMS = {
    "dataset": lambda: TensorDataset(INPUTS, LABELS),
    "tensors": lambda: (INPUTS, LABELS),
    "numpy": lambda: (INPUTS.numpy(), LABELS.numpy()),
    "floats": lambda: (INPUTS, LABELS.double()),
    "one-hot": lambda: [INPUTS, torch.eye(5)[LABELS]],
    "generator": lambda: ((x, int(y)) for x, y in zip(INPUTS, LABELS, strict=True)),
    "numpy generator": lambda: ((x.numpy(), y.numpy()) for x, y in zip(INPUTS, LABELS, strict=True)),
    "list of samples": lambda: [(x, int(y)) for x, y in zip(INPUTS, LABELS, strict=True)],
    "iterable dataset": Streamed,
    "labels in a list": lambda: (INPUTS, LABELS.tolist()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_one_dataset_gives_the_same_source(form: str) -> None:
    found, expected = as_source(FORMS[form]()), as_source(TensorDataset(INPUTS, LABELS))
    assert all(
        torch.equal(one, other) for one, other in zip(contents(found), contents(expected), strict=True)
    )
    assert found.fingerprint == expected.fingerprint
    assert found.classes == tuple("01234")


def test_one_dataset_is_parted_into_two_with_all_classes() -> None:
    source = as_source((INPUTS, LABELS))
    assert (len(source.train), len(source.test)) == (40, 10)
    assert torch.bincount(source.test.labels).tolist() == [2] * 5
    both = torch.cat([source.train.read(torch.arange(40)), source.test.read(torch.arange(10))])
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, INPUTS.tolist()))


@pytest.mark.parametrize("form", FORMS)
def test_two_of_any_form_are_a_training_and_a_test_part(form: str) -> None:
    source = as_source((FORMS[form](), (INPUTS[:7], LABELS[:7])))
    assert (len(source.train), len(source.test)) == (50, 7)
    assert torch.equal(source.train.read(torch.arange(50)), INPUTS)
    assert torch.equal(source.test.labels, LABELS[:7])


def test_a_list_of_two_samples_is_one_dataset() -> None:
    source = as_source([(INPUTS[0], 0), (INPUTS[1], 1)])
    assert (len(source.train), len(source.test)) == (1, 1)


def test_names_of_classes_are_kept() -> None:
    named = TensorDataset(INPUTS, LABELS)
    named.classes = ["a", "b", "c", "d", "e"]
    assert as_source(named).classes == as_source((named, named)).classes == tuple("abcde")


def test_bytes_are_images() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4), dtype=np.uint8)
    assert as_source((images, np.arange(20) % 2)).train.read(torch.tensor([0])).dtype == torch.uint8


def test_a_generator_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[tuple[Tensor, int]]:
        while True:
            yield INPUTS[0], 0

    monkeypatch.setattr(from_python, "MOST", 100)
    with pytest.raises(InputError, match="has not ended after 100 samples"):
        as_source(endless())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ((torch.zeros(9, 3, 4, 4), torch.zeros(5, 3, 4, 4)), "two arrays of inputs.*no labels"),
        ((INPUTS, INPUTS), "not one-hot"),
        ((INPUTS, LABELS + 0.5), "a regression target is no class"),
        ({1, 2}, "set is no dataset"),
        ((INPUTS, LABELS + 10**9), "would make 1000000005 classes; number them from 0 up"),
        (TensorDataset(INPUTS, torch.full((50,), torch.inf)), "labels must be integers from 0 up"),
        ((np.array([None] * 50), LABELS), "inputs are no numbers"),
        ((x for x in INPUTS), r"items must be \(tensor, label\) pairs"),
    ],
)
def test_what_is_not_clear_is_refused(data: object, why: str) -> None:
    with pytest.raises(InputError, match=why):
        as_source(data)


def test_training_takes_arrays() -> None:
    result = gapsl.train(
        method="psl",
        model="mlp",
        dataset=(INPUTS.numpy(), LABELS.numpy()),
        devices=2,
        rounds=2,
        partition="iid",
    )
    assert result is not None
    assert len(result.classes) == 5
