"""From a device's settings to the device: its data, its end of the model, its batches."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.common.streams import global_stream, numpy_stream
from gapsl.data import (
    ArraySamples,
    Batches,
    Partition,
    Samples,
    Shift,
    Source,
    load_partition,
    load_source,
    make_partition,
    make_transform,
)
from gapsl.data.download import Progress
from gapsl.data.probes import Probes
from gapsl.device.config import DeviceConfig
from gapsl.device.device import Device
from gapsl.device.exchange import DeviceInfo
from gapsl.device.faults import Faults, FaultyDevice
from gapsl.device.graphs import GraphBudget
from gapsl.device.label_private import LabelPrivateDevice
from gapsl.models import Split, build_model
from gapsl.models.cut import behead, normalise_at_cut
from gapsl.models.part import DTYPES, make_part
from gapsl.models.pretrained import load_own_start

EVALUATION_BATCH = 256

LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}

Indices = np.ndarray[Any, np.dtype[np.int64]]


def compute_device(name: str) -> torch.device:
    """Return where to compute, if this machine has it."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    try:
        where = torch.device(name)
        usable = available[where.type]
    except (RuntimeError, KeyError):
        raise InputError(f"unknown device {name!r}; choose cpu, cuda, cuda:N or mps") from None
    if not usable:
        raise InputError(f"this machine has no usable {where.type}; choose --device cpu")
    if where.type == "cuda":
        torch.backends.cudnn.benchmark = False  # it would choose kernels by timing, and so results by chance
        torch.backends.cudnn.deterministic = True
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    return where


def load_data(config: DeviceConfig, progress: Progress | None = None) -> Source:
    """Return the dataset that the settings name, or as much of it as they ask for."""
    return limited_to(config, load_source(config.dataset, data_dir=config.data_dir, progress=progress))


def limited_to(config: DeviceConfig, source: Source) -> Source:
    """Return as much of a dataset as the settings ask for."""
    test = limited(source.test, config.test_samples, "test_samples")
    if config.curve_samples is not None and config.curve_samples < len(test):
        # An order of which the first samples are a fair part.
        test = chosen(test, numpy_stream(0, "evaluation-order").permutation(len(test)))
    return replace(source, train=limited(source.train, config.train_samples, "train_samples"), test=test)


def limited(samples: Samples, count: int | None, setting: str) -> Samples:
    """Return a part of the samples, the same for every seed so that runs stay comparable."""
    if count is None or count == len(samples):
        return samples
    if count > len(samples):
        raise InputError(f"{setting} is {count}, but there are only {len(samples)} samples")
    return chosen(samples, np.sort(numpy_stream(0, "subset").permutation(len(samples))[:count]))


def chosen(samples: Samples, indices: Indices) -> Samples:
    """Return these of the samples, in memory."""
    return ArraySamples(samples.read(indices), samples.labels[torch.from_numpy(indices)])


def take_partition(config: DeviceConfig, source: Source, saved: Path | None) -> Partition:
    """Return who has what; a run that was started before keeps its partition."""
    if saved is not None:
        partition = load_partition(saved)
        if partition.fingerprint != source.train_fingerprint:
            raise InputError(
                f"the training data of {source.name} is not what {saved} was made of; "
                "give the same data (--data-dir names the folder with the files)"
            )
        return partition
    partition = make_partition(
        config.partition,
        source.train.labels,
        classes=len(source.classes),
        devices=config.devices,
        seed=config.seed,
        validation=config.validation,
        fingerprint=source.train_fingerprint,
    )
    if config.curve_samples is None:
        return partition
    shuffled = numpy_stream(config.seed, "evaluation-order").permutation(partition.validation)
    return replace(partition, validation=shuffled)


def named_model(config: DeviceConfig, source: Source) -> Split:
    """Return the two parts of the model that the settings name, at their start."""
    with global_stream(config.seed, "model"):
        return build_model(
            config.model,
            classes=len(source.classes),
            input_shape=source.input_shape,
            cut=config.cut,
            width=config.width,
            norm=config.norm,
            dropout=config.dropout,
            patch=config.patch,
            pretrained=config.pretrained,
        )


def normalised(parts: Split, config: DeviceConfig) -> Split:
    """Return the parts, normalised at the cut if the settings ask for it."""
    return normalise_at_cut(parts) if config.cut_norm == "sample" else parts


def arranged(model: nn.Module, config: DeviceConfig, where: torch.device) -> nn.Module:
    """Put a model where it computes, in its precision, its kernels in their order in memory."""
    model = model.to(where, DTYPES[config.precision])
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[config.layout])
    return model


def ends(config: DeviceConfig, source: Source, where: torch.device) -> tuple[nn.Module, nn.Module | None]:
    """Return what a device has of the model at its start: its part, and the head if labels stay with it."""
    parts = normalised(named_model(config, source), config)
    head = behead(parts.server)[1] if config.labels == "device" else None
    return arranged(parts.device, config, where), None if head is None else arranged(head, config, where)


def make_device(
    id: int,
    config: DeviceConfig,
    source: Source,
    indices: Indices,
    model: nn.Module,
    total_rounds: int,
    where: torch.device,
    *,
    probes: Probes | None,
    shift: Shift | None = None,
    faults: Faults | None = None,
    head: nn.Module | None = None,
    graphs: GraphBudget | None = None,
) -> tuple[Device, DeviceInfo]:
    """Return a device that starts from a model and has these samples, and what the server knows of it."""
    model, head = copy.deepcopy(model), copy.deepcopy(head)
    if config.pretrained is not None:
        load_own_start(model, head, config.pretrained, id)
    augment = None if config.augment == "auto" else config.augment
    batches = Batches(
        source.train,
        indices,
        seed=config.seed,
        device=id,
        batch_size=config.batch_size - config.probes,
        transform=make_transform(source, augment, shift),
    )
    device = Device(
        id,
        make_part(model, config.device_optimizer, total_rounds),
        batches,
        seed=config.seed,
        where=where,
        layout=LAYOUTS[config.layout],
        probes=probes,
        probe_steps=config.probe_steps,
        probe_gradients=config.probe_gradients,
        graphs=graphs,
    )
    if faults is not None and faults.kind != "flip" and id in faults.devices:
        device = FaultyDevice(device, faults.kind, len(source.classes))
    if head is not None:
        device = LabelPrivateDevice(device, make_part(head, config.device_optimizer, total_rounds))
    counts = torch.bincount(source.train.labels[torch.from_numpy(indices)], minlength=len(source.classes))
    return device, DeviceInfo(len(indices), tuple(counts.tolist()), batches.batches_per_pass)


def make_probes(config: DeviceConfig, source: Source) -> Probes | None:
    """Return the pictures that all devices draw alike, if the configuration asks for them."""
    return Probes(source, seed=config.seed, per_batch=config.probes) if config.probes else None


def batched(samples: Samples, indices: Indices, transform: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Yield samples as models see them, in order."""
    for start in range(0, len(indices), EVALUATION_BATCH):
        with global_stream(0, "evaluation"):  # for datasets that transform at random
            raw = samples.read(indices[start : start + EVALUATION_BATCH])
        yield transform(raw)
