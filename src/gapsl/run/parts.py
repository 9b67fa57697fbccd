"""The data and the model of a run: what the caller brought, or what the configuration names."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from gapsl.common.errors import InputError
from gapsl.data import DatasetSamples, Source, make_evaluation_transform
from gapsl.data.download import Progress
from gapsl.device.build import limited_to, load_data, named_model, normalised
from gapsl.methods.registry import METHODS
from gapsl.models import CutReport, Split, check_cut, load_pretrained, split
from gapsl.run.config import Config

GivenModel = nn.Module | Split
GivenData = Source | tuple[Dataset[Any], Dataset[Any]]


def take_source(config: Config, data: GivenData | None, progress: Progress | None = None) -> Source:
    """Return the data of a run: what the caller brought, or what the configuration names."""
    if data is None:
        return load_data(config, progress)
    return limited_to(config, data if isinstance(data, Source) else source_from(*data))


def source_from(train: Dataset[Any], test: Dataset[Any], *, name: str = "custom") -> Source:
    """Make a source of two datasets of (tensor, label) pairs, whose inputs are taken as they are."""
    ours, theirs = DatasetSamples(train), DatasetSamples(test)
    highest = max(int(s.labels.max()) if len(s) else 0 for s in (ours, theirs))
    names = getattr(train, "classes", None)
    classes = tuple(map(str, names)) if names else tuple(str(i) for i in range(highest + 1))
    if len(ours) == 0:
        raise InputError("the training dataset is empty; give at least one sample a device")
    channels = ours.read(torch.tensor([0])).shape[1]
    return Source(name, ours, theirs, classes, (0.0,) * channels, (1.0,) * channels)


def take_model(config: Config, source: Source, given: GivenModel | None) -> Split:
    """Return the two halves at their start, normalised at the cut if the configuration asks for it."""
    return normalised(take_halves(config, source, given), config)


def take_halves(config: Config, source: Source, given: GivenModel | None) -> Split:
    """Return the halves that the caller brought, or that the configuration names."""
    if given is not None:
        refuse_ignored(config, given)
    if isinstance(given, Split):
        return pretrained(copy.deepcopy(given), config)
    if given is not None:
        if config.cut is None:
            raise InputError("a model of your own needs a cut: give cut=..., or two modules as gapsl.Split")
        sample = source.train.read(torch.arange(min(2, len(source.train))))
        halves = split(copy.deepcopy(given), config.cut, make_evaluation_transform(source)(sample))
        return pretrained(halves, config)
    return named_model(config, source)


def pretrained(halves: Split, config: Config) -> Split:
    """Start a model that the caller brought from a file, if the configuration names one."""
    if config.pretrained is not None:
        load_pretrained(halves, config.pretrained)
    return halves


def refuse_ignored(config: Config, given: GivenModel) -> None:
    """Refuse settings that say how to build a model where the model is there already."""
    names = ["width", "norm", "dropout", "patch", *(["cut"] if isinstance(given, Split) else [])]
    for name in names:
        if getattr(config, name) != Config.model_fields[name].default:
            raise InputError(
                f"{name} does nothing to a model of your own ({type(given).__name__}); leave it out"
            )


def checked(halves: Split, config: Config, source: Source) -> CutReport:
    """Check the cut on a dummy batch before anything is trained."""
    for side, half in (("device", halves.device), ("server", halves.server)):
        if not any(parameter.requires_grad for parameter in half.parameters()):
            raise InputError(
                f"the {side}'s half has no parameter to train; cut elsewhere, or let some require gradients "
                "(for devices that do not learn there is the method frozen)"
            )
    return check_cut(
        halves,
        input_shape=source.input_shape,
        classes=len(source.classes),
        batch_size=config.batch_size,
        twice=METHODS[config.method].differentiates_twice(config.parameters()),
    )
