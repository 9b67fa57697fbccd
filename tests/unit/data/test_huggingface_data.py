"""Datasets of Hugging Face, and whatever has their shape, become samples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gapsl.common.errors import InputError
from gapsl.data.from_python import as_source
from gapsl.data.huggingface import HuggingFaceData


class Columns:
    """What a dataset of Hugging Face looks like from outside."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns, self.column_names = columns, list(columns)
        self.features = {name: SimpleNamespace(names=["cat", "dog"]) for name in columns}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}


def pictures(mode: str) -> list[Image.Image]:
    return [Image.new(mode, (5, 4), 7 + index) for index in range(6)]


@pytest.mark.parametrize(("mode", "shape"), [("L", (1, 4, 5)), ("RGB", (3, 4, 5)), ("P", (3, 4, 5))])
def test_images_become_bytes(mode: str, shape: tuple[int, ...]) -> None:
    source = as_source(HuggingFaceData(Columns(image=pictures(mode), label=[0, 1] * 3)))
    assert (source.input_shape, source.classes) == (shape, ("cat", "dog"))
    assert source.train.read(torch.tensor([0])).dtype == torch.uint8


def test_numbers_are_taken_as_they_are() -> None:
    data = HuggingFaceData(Columns(x=[[0.5, i] for i in range(6)], y=[0, 1] * 3), inputs="x", label="y")
    assert torch.equal(data[3][0], torch.tensor([0.5, 3.0]))
    assert as_source((data, data)).input_shape == (2,)
    arrays = HuggingFaceData(Columns(x=[np.zeros(3)] * 2, y=[0, 1]), inputs="x", label="y")
    assert arrays[0][0].dtype == torch.float64


def test_what_is_no_split_and_columns_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match=r"no column 'image'; it has x, label"):
        HuggingFaceData(Columns(x=[1], label=[0]))
    splits = SimpleNamespace(column_names={"train": ["image"]})
    with pytest.raises(InputError, match=r"choose one, for example dataset\['train'\]"):
        HuggingFaceData(splits)


def test_a_real_dataset_is_read() -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `huggingface` is not installed")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    columns = {"image": pictures("RGB"), "label": [0, 1] * 3}
    source = as_source(HuggingFaceData(datasets.Dataset.from_dict(columns, features=features)))
    assert (source.input_shape, source.classes) == ((3, 4, 5), ("cat", "dog"))
    assert source.train.labels.tolist() + source.test.labels.tolist()
