"""Datasets of Hugging Face's `datasets` as (input, label) pairs; nothing of it is imported here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gapsl.common.errors import InputError


class HuggingFaceData(Dataset[tuple[Tensor, int]]):
    """A map-style dataset with a column of inputs and one of labels, for `gapsl.train(dataset=...)`.

    Images become bytes of (channels, height, width); everything else is taken as the numbers it is.
    """

    def __init__(self, dataset: Any, *, inputs: str = "image", label: str = "label") -> None:
        columns = list(getattr(dataset, "column_names", None) or ())
        if not hasattr(dataset, "__len__") or isinstance(getattr(dataset, "column_names", None), dict):
            raise InputError(
                f"{type(dataset).__name__} is no split of a dataset; choose one, for example "
                "dataset['train'], not streamed"
            )
        for name in (inputs, label):
            if name not in columns:
                raise InputError(
                    f"the dataset has no column {name!r}; it has {', '.join(columns)}: name them with "
                    "inputs=... and label=..."
                )
        self._dataset, self._inputs = dataset, inputs
        self.labels = [int(found) for found in dataset[label]]
        names = getattr(dataset.features[label], "names", None)
        self.classes = None if names is None else tuple(names)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        given = self._dataset[index][self._inputs]
        return as_input(given), self.labels[index]


def as_input(given: Any) -> Tensor:
    """Return an image or nested numbers as a tensor."""
    if isinstance(given, Tensor):
        return given
    if not hasattr(given, "convert"):  # what pillow's images have
        return torch.tensor(np.asarray(given, dtype=None if hasattr(given, "dtype") else np.float32))
    pixels = np.array(given if given.mode in ("L", "RGB") else given.convert("RGB"))
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())
