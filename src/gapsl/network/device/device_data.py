"""What a device works with: its settings, its samples, and the sets it can be tested with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.data import ArraySamples, Samples, Shift, Source, load_source, make_evaluation_transform
from gapsl.device.build import (
    EVALUATION_BATCH,
    Indices,
    compute_device,
    ends,
    load_data,
    make_device,
    make_probes,
    take_partition,
)
from gapsl.device.config import DeviceConfig, read_device_config
from gapsl.device.device import Device
from gapsl.device.exchange import DeviceInfo
from gapsl.device.faults import make_faults
from gapsl.device.model_info import ModelInfo, describe_model
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError


class HeldOut(NamedTuple):
    """Samples that a device is tested with, and whether the server has to be told their labels."""

    samples: Samples
    indices: Indices
    labelled: bool


class DeviceData:
    """A device's data and settings, from which it can be built again as it was at the start of the run."""

    def __init__(
        self,
        id: int,
        config: DeviceConfig,
        source: Source,
        indices: Indices,
        sets: Mapping[wire.Evaluate.Set, HeldOut],
        shift: Shift | None = None,
    ) -> None:
        self._id, self.config, self._source, self._indices = id, config, source, indices
        self._sets, self._shift = sets, shift
        self._where = compute_device(config.device)
        self._probes = make_probes(config, source)
        self._normal = make_evaluation_transform(source)
        _, self.info = self._made(1)
        self.test_samples = len(sets[wire.Evaluate.OWN].indices) if wire.Evaluate.OWN in sets else 0

    def device(self, total_rounds: int) -> Device:
        """Return the device as it is at the start of the run."""
        return self._made(total_rounds)[0]

    def model_info(self) -> ModelInfo:
        """Return what the device needs to use its model when the run is over."""
        return describe_model(self.config, self._source)

    def inputs(self, split: wire.Evaluate.Set, batch: int) -> tuple[Tensor, Tensor | None]:
        """Return a batch of an evaluation set, and labels if they are the device's own."""
        if split not in self._sets:
            raise WireError(wire.MALFORMED, f"this device has no evaluation set {split}")
        samples, indices, labelled = self._sets[split]
        chosen = indices[batch * EVALUATION_BATCH : (batch + 1) * EVALUATION_BATCH]
        labels = samples.labels[torch.from_numpy(chosen)] if labelled else None
        return self._normal(samples.read(chosen)), labels

    def _made(self, total_rounds: int) -> tuple[Device, DeviceInfo]:
        config = self.config
        model, head = ends(config, self._source, self._where)
        return make_device(
            self._id,
            config,
            self._source,
            self._indices,
            model,
            total_rounds,
            self._where,
            probes=self._probes,
            shift=self._shift,
            faults=make_faults(config.faults, devices=config.devices, seed=config.seed),
            head=head,
        )


def load_device_data(
    welcome: wire.Welcome,
    data: str | None = None,
    data_dir: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> DeviceData:
    """Return what a device works with: its own data, or its share of the run's dataset."""
    if welcome.own_data and data is None:
        raise InputError(
            "bring your data: --data folder:PATH, with a folder for each class that the device has, of "
            f"{', '.join(welcome.classes)}"
        )
    if data is not None and not welcome.own_data:
        raise InputError("this run divides a dataset that all devices have; leave out --data")
    config, unknown = read_device_config(welcome.config)
    if unknown:
        tell(f"settings that this gapsl does not know are ignored: {', '.join(unknown)}")
    device = welcome.device
    if (
        data is not None
    ):  # which nobody else has seen: the device trains on one part, and is tested on the other
        source = fitted(load_source(data, data_dir=data_dir), welcome)
        own = {wire.Evaluate.OWN: HeldOut(source.test, np.arange(len(source.test)), labelled=True)}
        return DeviceData(device, config, source, np.arange(len(source.train)), own)
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": data_dir})
    source = load_data(config)
    partition = take_partition(config, source, None)
    sets = {
        wire.Evaluate.TEST: HeldOut(source.test, np.arange(len(source.test)), labelled=False),
        wire.Evaluate.VALIDATION: HeldOut(source.train, partition.validation, labelled=False),
    }
    shift = None if partition.shift is None else partition.shift[device]
    return DeviceData(device, config, source, partition.devices[device], sets, shift)


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

    def relabelled(samples: Samples) -> Samples:
        return ArraySamples(samples.read(torch.arange(len(samples))), numbers[samples.labels])

    return replace(
        source,
        train=relabelled(source.train),
        test=relabelled(source.test),
        classes=classes,
        mean=tuple(welcome.mean),
        std=tuple(welcome.std),
    )
