"""The models by name, and how a name and its options become two parts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from gapsl.common.errors import InputError
from gapsl.common.registry import Registry
from gapsl.models.chains import mlp, small, vgg16
from gapsl.models.cut import Split, split
from gapsl.models.pretrained import load_pretrained
from gapsl.models.vit import SIZES, vit

logger = logging.getLogger(__name__)

# Called with classes, input_shape and those options of build_model that its signature names.
Builder = Callable[..., nn.Module | Split]

CUTS = "how many of its children go to the device, or the dotted name of the device's last layer"


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be built by name."""

    build: Builder
    default_cut: int | str | None  # None if it is built as two parts
    summary: str
    cuts: str  # which cuts there are, in words


class Models(Registry[ModelEntry]):
    """The models by name; a plugin may announce a builder alone."""

    def accept(self, entry: object) -> ModelEntry:
        """Take an entry, or a builder, whose first docstring line is its summary."""
        if isinstance(entry, ModelEntry):
            return entry
        if not callable(entry):
            raise TypeError("neither a gapsl.ModelEntry nor a function that builds a model")
        summary = (inspect.getdoc(entry) or "a model of a plugin").partition("\n")[0].rstrip(".")
        return ModelEntry(entry, getattr(entry, "default_cut", None), summary, CUTS)


MODELS = Models("model", group="gapsl.models")


def register_model(
    name: str,
    builder: Builder,
    *,
    default_cut: int | str | None = None,
    summary: str,
    cuts: str = CUTS,
) -> ModelEntry:
    """Make a model known by name; the builder returns a module, or two parts in a `Split`.

    It is called as `builder(classes=..., input_shape=...)`, and with `width`, `norm`, `dropout` and `patch`
    as far as its signature names them: an option that it does not name cannot be set.
    """
    return MODELS.register(name, ModelEntry(builder, default_cut, summary, cuts))


def build_model(
    name: str,
    *,
    classes: int,
    input_shape: tuple[int, ...],
    cut: int | str | None = None,
    width: float = 1.0,
    norm: str = "none",
    dropout: float = 0.0,
    patch: int = 4,
    pretrained: str | Path | None = None,
) -> Split:
    """Build a model and cut it.

    Its weights are drawn from torch's global generator, which the caller seeds.
    """
    entry = MODELS[name]
    if classes < 2:
        raise InputError(f"a classifier needs 2 classes or more, not {classes}")
    if not input_shape or min(input_shape) < 1:
        raise InputError(f"input_shape {input_shape} is no shape of one sample; give sizes like (3, 32, 32)")
    options = {"width": (width, 1.0), "norm": (norm, "none"), "dropout": (dropout, 0.0), "patch": (patch, 4)}
    model = entry.build(classes=classes, input_shape=input_shape, **_accepted(name, entry.build, options))
    if isinstance(model, Split):
        if cut is not None:
            raise InputError(f"{name} is built as two parts, so it has no cut to choose; leave the cut out")
        parts = model
    else:
        at = entry.default_cut if cut is None else cut
        if at is None:
            raise InputError(f"{name} has no default cut; give one: {entry.cuts}")
        # A generator of its own, so that the trial does not shift the draws that follow.
        sample = torch.randn(2, *input_shape, generator=torch.Generator().manual_seed(0))
        parts = split(model, int(at) if isinstance(at, str) and at.isdecimal() else at, sample)
    if pretrained is not None:
        report = load_pretrained(parts, pretrained)
        logger.info(
            "%s: %d tensors loaded from %s; not loaded: %s; in the file but not in the model: %s",
            name, len(report.loaded), pretrained, list(report.skipped), list(report.unused),
        )  # fmt: skip
    return parts


def _accepted(name: str, builder: Builder, options: dict[str, tuple[object, object]]) -> dict[str, object]:
    """Return the options that a builder takes, and refuse any other that was set: it would be ignored."""
    parameters = inspect.signature(builder).parameters
    everything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    accepted = {}
    for option, (value, default) in options.items():
        if everything or option in parameters:
            accepted[option] = value
        elif value != default:
            known = [other for other in options if other in parameters]
            raise InputError(
                f"the model {name} takes no {option}; leave it out "
                f"(it takes: {', '.join(known) or 'no options'})"
            )
    return accepted


register_model(
    "vgg16",
    vgg16,
    default_cut=4,
    summary="VGG-16 with torchvision's names and a small head; images of 32×32 and more",
    cuts="1 to 13: after the k-th convolution with its norm, ReLU and pool; or a name like features.9",
)
for _name, _size in SIZES.items():
    register_model(
        _name,
        partial(vit, _name),
        default_cut=max(1, _size.depth // 4),
        summary=f"vision transformer with timm's names, {_size.embedding} wide, {_size.depth} blocks",
        cuts=f"1 to {_size.depth - 1}: after the k-th block; or a name like blocks.0",
    )
register_model(
    "small",
    small,
    default_cut=1,
    summary="a CNN of three stages for images from 8×8 digits to 32×32 photographs",
    cuts="1 to 3: after the k-th stage; or a name like stages.0.relu",
)
register_model(
    "mlp",
    mlp,
    default_cut=1,
    summary="a smooth perceptron of two hidden layers for inputs of any shape",
    cuts="1 or 2: after the k-th hidden layer; or a name like hidden.0.linear",
)
