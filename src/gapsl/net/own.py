"""A device that brings its own data, which nobody else has seen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gapsl.assembly import (
    EVALUATION_BATCH,
    compute_device,
    ends,
    make_device,
    make_probes,
)
from gapsl.data import ArraySamples, Samples, Source, load_source, make_evaluation_transform
from gapsl.errors import InputError
from gapsl.net import wire_pb2 as wire
from gapsl.strategies.exchange import DeviceInfo
from gapsl.training.config import make_config
from gapsl.training.device import Device


class OwnWorkplace:
    """A dataset of the device's own: it trains on the training part, and is tested on the test part."""

    def __init__(self, welcome: wire.Welcome, data: str, data_dir: str | None) -> None:
        self.config = make_config(json.loads(welcome.config))
        self.id = welcome.device
        self.source = fitted(load_source(data, data_dir=data_dir), welcome)
        self.where = compute_device(self.config.device)
        self._probes = make_probes(self.config, self.source)
        self._normal = make_evaluation_transform(self.source)
        _, self.info = self._made(1)

    def device(self, total_rounds: int) -> Device:
        """Return the device as it is at the start of the run."""
        return self._made(total_rounds)[0]

    def inputs(self, split: wire.Evaluate.Set, batch: int) -> tuple[Tensor, Tensor | None, bool]:
        """Return a batch of the device's own test samples with their labels, and if it is the last."""
        samples = self.source.test
        first, stop = batch * EVALUATION_BATCH, min((batch + 1) * EVALUATION_BATCH, len(samples))
        chosen = np.arange(first, stop)
        labels = samples.labels[torch.from_numpy(chosen)]
        return self._normal(samples.read(chosen)), labels, stop == len(samples)

    def _made(self, total_rounds: int) -> tuple[Device, DeviceInfo]:
        config = self.config
        half, head = ends(config, self.source, self.where)
        everything = np.arange(len(self.source.train))
        return make_device(
            self.id,
            config,
            self.source,
            everything,
            half,
            total_rounds,
            self.where,
            probes=self._probes,
            head=head,
        )


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
