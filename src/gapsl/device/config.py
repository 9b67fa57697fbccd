"""The settings of a run that a device needs to know: its data, its part and how it trains it. No method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from gapsl.common.errors import InputError
from gapsl.common.settings import Settings, in_words
from gapsl.models.part import OptimizerConfig


class DeviceConfig(Settings):
    """What a device is built from; a run's configuration has the same settings and some more."""

    seed: int = Field(0, ge=0, lt=2**63, description="every random choice of the run follows from it")
    dataset: str = Field("digits", description="digits, fashion-mnist, cifar10, cifar100 or folder:PATH")
    data_dir: str | None = Field(None, description="where data files are looked for and downloaded to")
    train_samples: int | None = Field(None, ge=1, description="use so many training samples; unset: all")
    test_samples: int | None = Field(None, ge=1, description="use so many test samples; unset: all")
    validation: float = Field(
        0.0, ge=0, lt=1, description="share of the training data held out to choose settings on"
    )
    augment: Literal["auto", "none", "crop-flip"] = Field(
        "auto", description="augmentation; auto: what suits the dataset"
    )
    devices: int = Field(10, ge=1, le=10**6, description="number of devices")
    partition: str = Field(
        "dirichlet:0.1", description="iid, dirichlet:ALPHA, shards:K, unequal:ALPHA or file:PATH, [+SHIFT]"
    )
    batch_size: int = Field(32, ge=1, le=1_000_000, description="samples a device contributes to a round")
    model: str = Field("small", description="the model (see `gapsl model`)")
    cut: int | str | None = Field(None, description="where to cut it; unset: the model's own default")
    width: float = Field(1.0, gt=0, le=64, description="multiplier of the model's widths")
    norm: Literal["none", "batch", "group"] = Field("none", description="normalisation layers")
    cut_norm: Literal["none", "sample"] = Field(
        "none", description="sample: each sample's activations have mean 0 and variance 1 at the cut"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout rate, in models that have it")
    patch: int = Field(4, ge=1, description="patch size (ViT)")
    pretrained: str | None = Field(
        None, description="what to start from: a .safetensors or .pt file, an export, or a run"
    )
    device_optimizer: OptimizerConfig = Field(OptimizerConfig(), description="trains the client-side models")
    labels: Literal["server", "device"] = Field(
        "server",
        description="who has them; device (psl, gapsl): the last layer and the loss are on the devices, too",
    )
    probes: int = Field(
        0, ge=0, description="rows of a batch that are the same pictures for all devices, to agree on"
    )
    probe_steps: int = Field(
        0,
        ge=0,
        le=1000,
        description="steps of solving by which a device agrees with the others on them; 0: it is pulled",
    )
    probe_gradients: bool = Field(
        False,
        description="devices step by the gradient that does to the probes what theirs do on average, so that "
        "all take the same step",
    )
    faults: str = Field(
        "none",
        description="devices that misbehave: flip:N (gradients), labels:N (random), permute:N (labels), "
        "noise:N or scale:N (activations)",
    )
    curve_samples: int | None = Field(
        None, ge=1, description="evaluate on so many samples before the last round; unset: on all"
    )
    device: str = Field("cpu", description="where to compute: cpu, cuda, cuda:N or mps")
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of this process")
    precision: Literal["float32", "float64"] = Field("float32", description="precision of the weights")
    layout: Literal["contiguous", "channels-last"] = Field(
        "contiguous", description="memory order of images; on CPUs channels-last is often a third faster"
    )

    @model_validator(mode="after")
    def _check_rows(self) -> DeviceConfig:
        if self.probes >= self.batch_size:
            raise ValueError(
                f"probes ({self.probes}) must leave room for samples in a batch ({self.batch_size})"
            )
        if self.probe_gradients and not (self.probes and self.probe_steps):
            raise ValueError(
                "probe_gradients needs probes, and steps of solving for them; set probes = 2 and "
                "probe_steps = 8, or probe_gradients = false"
            )
        return self

    def for_device(self) -> str:
        """Return the settings that a device needs, as JSON."""
        return self.model_dump_json(include=set(DeviceConfig.model_fields))


def read_device_config(text: str) -> tuple[DeviceConfig, list[str]]:
    """Read the settings that a server sends; returns the names of those that this gapsl does not know."""
    try:
        known, unknown = known_settings(json.loads(text), DeviceConfig)
        return DeviceConfig.model_validate(known), unknown
    except ValidationError as error:
        mistakes = [f"{'.'.join(map(str, found['loc']))}: {in_words(found)}" for found in error.errors()]
        wrong = "; ".join(mistakes)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        wrong = str(error)
    raise InputError(f"the server's settings cannot be used: {wrong}; install the same gapsl on both")


def known_settings(
    given: Mapping[str, Any], model: type[BaseModel], prefix: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that a model has, section by section, and the names of the others."""
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in given.items():
        field = model.model_fields.get(name)
        if field is None:
            unknown.append(prefix + name[:100])
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            known[name], more = known_settings(value, field.annotation, f"{prefix}{name}.")
            unknown += more
        else:
            known[name] = value
    return known, unknown
