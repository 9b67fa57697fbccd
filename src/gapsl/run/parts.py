"""The data and the model of a run: what the caller brought, or what the configuration names."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from gapsl.common.errors import InputError
from gapsl.data import Partition, Source, make_evaluation_transform
from gapsl.data.download import Progress
from gapsl.data.from_python import GivenData, as_source
from gapsl.device.build import Indices, limited_to, load_data, named_model, normalised
from gapsl.device.faults import Faults
from gapsl.methods.registry import METHODS
from gapsl.methods.server_model import Loss, cross_entropy
from gapsl.models import CutReport, GivenModel, Split, check_cut, load_pretrained, split
from gapsl.run.config import Config
from gapsl.run.loop import participants


@dataclass(frozen=True)
class Given:
    """The objects that a caller brought instead of what the settings name."""

    model: GivenModel | None = None
    dataset: GivenData | None = None
    loss: Loss = cross_entropy

    def names(self) -> dict[str, str]:
        """Return what was brought, by setting."""
        loss = None if self.loss is cross_entropy else self.loss
        found = {"model": self.model, "dataset": self.dataset, "loss": loss}
        return {
            name: getattr(value, "__name__", type(value).__name__)
            for name, value in found.items()
            if value is not None
        }

    def check(self, call: str, out: str | Path, custom: Mapping[str, str]) -> None:
        """Refuse to go on with a run that was given objects if they are not given again."""
        missing = [f"{name}=... ({custom[name]})" for name in custom if name not in self.names()]
        if missing:
            raise InputError(
                f"{out} was started from Python with objects of its own; {call} it there: "
                f"gapsl.{call}({str(out)!r}, {', '.join(missing)})"
            )


@dataclass(frozen=True)
class Parts:
    """What a run is made of besides its fleet, checked: devices can be built from it, or waited for."""

    config: Config
    source: Source
    partition: Partition
    owners: Sequence[Indices]  # the samples of each device
    model: Split  # at its start
    total_rounds: int
    where: torch.device
    faults: Faults | None
    loss: Loss
    head: nn.Module | None = None  # the last layer, where devices have it
    own_data: bool = False  # whether devices bring their data

    def epoch(self, samples: int) -> int:
        """Return how many rounds a pass over so many samples takes."""
        present = participants(self.config.devices, self.config.participation)
        return math.ceil(samples / (present * (self.config.batch_size - self.config.probes)))


def take_source(config: Config, data: GivenData | None, progress: Progress | None = None) -> Source:
    """Return the data of a run: what the caller brought, or what the configuration names."""
    if data is None:
        return load_data(config, progress)
    return limited_to(config, as_source(data))


def take_model(config: Config, source: Source, given: GivenModel | None) -> Split:
    """Return the model that the caller brought, or that the configuration names, at its start."""
    if given is None:
        return normalised(named_model(config, source), config)
    if not isinstance(given, nn.Module | Split):
        raise InputError(
            f"{given!r} is no model; give a name, a torch module (an object, no class) or gapsl.Split"
        )
    refuse_ignored(config, given)
    model = copy.deepcopy(given)
    if isinstance(model, nn.Module):
        if config.cut is None:
            raise InputError("a model of your own needs a cut: give cut=..., or two modules as gapsl.Split")
        sample = source.train.read(torch.arange(min(2, len(source.train))))
        model = split(model, config.cut, make_evaluation_transform(source)(sample))
    if config.pretrained is not None:
        load_pretrained(model, config.pretrained)
    return normalised(model, config)


def refuse_ignored(config: Config, given: GivenModel) -> None:
    """Refuse settings that say how to build a model where the model is there already."""
    names = ["width", "norm", "dropout", "patch", *(["cut"] if isinstance(given, Split) else [])]
    for name in names:
        if getattr(config, name) != Config.model_fields[name].default:
            raise InputError(
                f"{name} does nothing to a model of your own ({type(given).__name__}); leave it out"
            )


def checked(model: Split, config: Config, source: Source) -> CutReport:
    """Check the cut on a dummy batch before anything is trained."""
    for side, part in (("client-side", model.device), ("server-side", model.server)):
        if not any(parameter.requires_grad for parameter in part.parameters()):
            raise InputError(
                f"the {side} model has no parameter to train; cut elsewhere, or let some require gradients "
                "(for devices that do not learn there is the method frozen)"
            )
    return check_cut(
        model,
        input_shape=source.input_shape,
        classes=len(source.classes),
        batch_size=config.batch_size,
        twice=METHODS[config.method].differentiates_twice(config.parameters()),
    )
