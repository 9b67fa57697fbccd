"""What a trained model needs to be used without its run: classes, how inputs are prepared, how it is built.

It is the file `model.json` in a run's folder, in a device's state, and a part of an export's JSON.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, ValidationError
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.common.reading import read_bytes, read_text
from gapsl.common.settings import Settings
from gapsl.common.streams import global_stream
from gapsl.data import Source
from gapsl.data.samples import check_kind
from gapsl.data.transform import normalise, to_float
from gapsl.device.config import DeviceConfig
from gapsl.models import MODELS, Split, build_model
from gapsl.models.cut import normalise_at_cut
from gapsl.models.part import DTYPES

NAME = "model.json"
KIND, SCHEMA = "gapsl-model", 1
# What makes two models compute alike, whoever trained them.
BUILT_BY = (
    "model",
    "own_model",
    "cut",
    "width",
    "norm",
    "dropout",
    "patch",
    "cut_norm",
    "precision",
    "labels",
)


class ModelInfo(Settings):
    """How to build a model, and how to feed it."""

    classes: tuple[str, ...] = Field(min_length=1)
    input_shape: tuple[PositiveInt, ...] = Field(min_length=1, description="of one input")
    mean: tuple[float, ...] = Field(description="by channel, of inputs as they are below")
    std: tuple[PositiveFloat, ...]
    inputs: Literal["bytes", "unit", "own"] = Field(
        description="bytes: 0 to 255, scaled to [0, 1]; unit: numbers in [0, 1]; own: a dataset's own numbers"
    )
    model: str
    own_model: str = Field("", description="the class of a model that was given from Python")
    cut: int | str | None = None
    width: float = 1.0
    norm: str = "none"
    dropout: float = 0.0
    patch: int = 4
    cut_norm: Literal["none", "sample"] = "none"
    precision: Literal["float32", "float64"] = "float32"
    labels: Literal["server", "device"] = "server"

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return DTYPES[self.precision]

    def build(self) -> Split:
        """Return the two parts of a model that is known by name, with weights that mean nothing."""
        with torch.random.fork_rng(devices=[]):
            parts = build_model(
                self.model,
                classes=len(self.classes),
                input_shape=self.input_shape,
                cut=self.cut,
                width=self.width,
                norm=self.norm,
                dropout=self.dropout,
                patch=self.patch,
            )
        return self.finished(parts)

    def finished(self, parts: Split) -> Split:
        """Return the parts in the precision of training, normalised at the cut if they were."""
        if self.cut_norm == "sample":
            parts = normalise_at_cut(parts)
        return Split(parts.device.to(self.dtype), parts.server.to(self.dtype))

    def preprocess(self, inputs: Tensor | NDArray[Any]) -> Tensor:
        """Return raw inputs, one or a batch of them, as the model takes them: scaled and normalised."""
        raw = torch.as_tensor(inputs)
        check_kind(raw, "inputs")
        if tuple(raw.shape) == self.input_shape:
            raw = raw[None]
        if tuple(raw.shape[1:]) != self.input_shape:
            raise InputError(
                f"inputs of shape {tuple(raw.shape)}; the model takes {self.input_shape}, one or a batch of "
                "them"
            )
        return normalise(to_float(raw), self.mean, self.std).to(self.dtype)

    def fingerprint(self) -> str:
        """Return what both parts of a model must agree on: how it is built, its inputs and its classes."""
        values = self.model_dump(mode="json", include={*BUILT_BY, "classes", "input_shape"})
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def differences(self, other: ModelInfo) -> list[str]:
        """Return in what two models differ that must agree, as `name: mine and theirs`."""
        names = (*BUILT_BY, "input_shape", "classes")
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return [f"{name} {mine} and {theirs}" for name, mine, theirs in pairs if mine != theirs]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, with what says which file this is."""
        return {"kind": KIND, "schema": SCHEMA, **self.model_dump(mode="json")}

    def save(self, folder: Path) -> None:
        """Write its file into a folder, unless that has one that says the same."""
        path, text = folder / NAME, json.dumps(self.to_dict(), indent=1) + "\n"
        if not path.is_file() or read_text(path, errors="replace") != text:
            write_text(path, text)


def describe_model(
    config: DeviceConfig, source: Source, *, own_model: str = "", own_data: bool = False
) -> ModelInfo:
    """Return what a run's model needs to be used; `own_data`: the dataset was given from Python."""
    with global_stream(0, "describe"):  # for datasets that transform at random
        raw = source.train.read(np.zeros(1, dtype=np.int64)).dtype
    floats: Literal["unit", "own"] = "own" if own_data or len(source.input_shape) != 3 else "unit"
    cut = config.cut
    if cut is None and not own_model:
        cut = MODELS[config.model].default_cut
    return ModelInfo(
        classes=source.classes,
        input_shape=source.input_shape,
        mean=source.mean,
        std=source.std,
        inputs="bytes" if raw == torch.uint8 else floats,
        own_model=own_model,
        cut=int(cut) if isinstance(cut, str) and cut.isdecimal() else cut,
        **{name: getattr(config, name) for name in BUILT_BY if name not in ("own_model", "cut")},
    )


def read_model_info(path: Path) -> ModelInfo:
    """Read the file, or say what is wrong with it."""
    fix = "put it back from a copy, or take model.json of another folder of the same run"
    try:
        return parse_model_info(json.loads(read_bytes(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}; {fix}") from None


def parse_model_info(values: Any) -> ModelInfo:
    """Return what JSON says of a model; ValueError if it does not."""
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise ValueError("it does not describe a model of gapsl")
    if values.get("schema") != SCHEMA:
        raise ValueError(f"it has schema {values.get('schema')!r}, this gapsl reads {SCHEMA}")
    return ModelInfo.model_validate({k: v for k, v in values.items() if k not in ("kind", "schema")})


def first_line(error: Exception) -> str:
    """Return what is wrong in one line."""
    if isinstance(error, ValidationError):
        mistake = error.errors()[0]
        return f"{'.'.join(map(str, mistake['loc']))}: {mistake['msg']}"
    return str(error).partition("\n")[0]
