"""A device that brings its own data, which nobody else has seen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.data import ArraySamples, Samples, Source, load_source
from gapsl.network.device.device_data import DataPlace, HeldOut
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.run.config import make_config


def own_place(welcome: wire.Welcome, data: str, data_dir: str | None) -> DataPlace:
    """Return a place whose device trains on the training part of a dataset, and is tested on the other."""
    config = make_config(json.loads(welcome.config))
    source = fitted(load_source(data, data_dir=data_dir), welcome)
    sets = {wire.Evaluate.OWN: HeldOut(source.test, np.arange(len(source.test)), labelled=True)}
    return DataPlace(welcome.device, config, source, np.arange(len(source.train)), sets)


def fitted(source: Source, welcome: wire.Welcome) -> Source:
    """Return a device's data with the run's classes and normalisation, or say why they do not fit."""
    classes, shape = tuple(welcome.classes), tuple(welcome.inputs)
    if source.input_shape != shape:
        raise InputError(
            f"{source.name} has inputs of shape {source.input_shape}, the run has {shape}; for images give a "
            f"size: folder:PATH?size={shape[-1]}"
        )
    unknown = sorted(set(source.classes) - set(classes))
    if unknown:
        raise InputError(
            f"{source.name} has classes that the run does not have: {', '.join(unknown[:5])}; "
            f"it has {', '.join(classes[:20])}"
        )
    numbers = torch.tensor([classes.index(name) for name in source.classes])
    return replace(
        source,
        train=relabelled(source.train, numbers),
        test=relabelled(source.test, numbers),
        classes=classes,
        mean=tuple(welcome.mean),
        std=tuple(welcome.std),
    )


def relabelled(samples: Samples, numbers: Tensor) -> Samples:
    """Return samples whose classes have other numbers."""
    return ArraySamples(samples.read(torch.arange(len(samples))), numbers[samples.labels])
