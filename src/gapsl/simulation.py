"""From a configuration to a run in this process: data, partition, model, devices, server."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from gapsl.data import (
    ArraySamples,
    Batches,
    DatasetSamples,
    Partition,
    Samples,
    Source,
    load_partition,
    load_source,
    make_evaluation_transform,
    make_partition,
    make_transform,
)
from gapsl.data.download import Progress
from gapsl.data.probes import Probes
from gapsl.errors import InputError
from gapsl.fleets.local import LocalFleet
from gapsl.halves import Half
from gapsl.losses import check_loss, make_losses
from gapsl.models import CutReport, Split, build_model, check_cut, load_pretrained, split
from gapsl.strategies.base import Setting, Strategy
from gapsl.strategies.common_ground import CommonGround
from gapsl.strategies.exchange import DeviceInfo
from gapsl.strategies.passes import Loss, Passes, cross_entropy
from gapsl.strategies.registry import METHODS
from gapsl.streams import global_stream, numpy_stream
from gapsl.training.config import Config, OptimizerConfig
from gapsl.training.device import Device
from gapsl.training.faults import Faults, FaultyDevice, make_faults
from gapsl.training.fleet import Split as EvaluationSplit
from gapsl.training.loop import Training, participants

EVALUATION_BATCH = 256
DEFAULT_EPOCHS = 20

LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}

# Settings that may change between two processes of one run without making it another.
INCIDENTAL = {"data_dir", "label", "tensorboard", "checkpoint_every", "keep_checkpoints"}

GivenModel = nn.Module | Split
GivenData = Source | tuple[Dataset[Any], Dataset[Any]]


def prepare(
    config: Config,
    *,
    model: GivenModel | None = None,
    data: GivenData | None = None,
    partition_file: Path | None = None,
    loss: Loss = cross_entropy,
    progress: Progress | None = None,
) -> Training:
    """Build everything a run needs, checking it all before the first round.

    `model` and `data` replace what the configuration names, `partition_file` is a partition to go on with.
    """
    where = compute_device(config.device)
    source = take_source(config, data, progress)
    partition = take_partition(config, source, partition_file)
    counts = torch.from_numpy(partition.label_counts(source.train.labels, len(source.classes)))
    halves = take_model(config, source, model)
    checked(halves, config, source)
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    halves = Split(
        *(arranged(half.to(where, dtype), config.layout) for half in (halves.device, halves.server))
    )

    check_loss(loss)
    strategy_class = METHODS[config.method]
    if strategy_class.pooled and partition.shift is not None:
        raise InputError(
            f"{config.method} has all data in one place, so no device shifts it ({partition.spec}); "
            "leave out the +shift, or this method"
        )
    present = participants(config.devices, config.participation)
    per_epoch = math.ceil(sum(partition.sizes) / (present * (config.batch_size - config.probes)))
    total_rounds = config.rounds or (config.epochs or DEFAULT_EPOCHS) * per_epoch
    owners = [np.sort(np.concatenate(partition.devices))] if strategy_class.pooled else partition.devices
    faults = make_faults(config.faults, devices=config.devices, seed=config.seed)
    if faults is not None and strategy_class.pooled:
        raise InputError(
            f"{config.method} has no devices that could misbehave; leave out faults, or this method"
        )
    fleet = make_fleet(config, source, partition, owners, halves.device, total_rounds, where, faults)
    losses = make_losses(loss, config, fleet.devices, faults, classes=len(source.classes))
    server = Passes(
        make_half(halves.server, config.server_optimizer, total_rounds),
        seed=config.seed,
        loss=losses.server,
        device_loss=losses.device,
    )
    setting = Setting(
        seed=config.seed,
        total_rounds=total_rounds,
        rounds_per_epoch=per_epoch,
        batches_per_round=present,
        devices=fleet.devices,
        reduction=config.reduction,
        device_gradient=config.device_gradient,
        parameters=config.parameters(),
    )
    strategy: Strategy = strategy_class(server, setting)
    labels: dict[EvaluationSplit, Tensor] = {"test": source.test.labels}
    if len(partition.validation):
        labels["validation"] = source.train.labels[torch.from_numpy(partition.validation)]
    return Training(
        config=config,
        strategy=strategy,
        fleet=fleet,
        total_rounds=total_rounds,
        rounds_per_epoch=per_epoch,
        labels=labels,
        proportions=counts.double() / counts.sum(dim=1, keepdim=True),
        partition=partition,
        identity=run_identity(config, source.fingerprint, partition),
        calibration=losses.calibration,
        common_ground=make_common_ground(config),
    )


def compute_device(name: str) -> torch.device:
    """Return where to compute, if this machine has it."""
    kind = name.partition(":")[0]
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if kind not in available:
        raise InputError(f"unknown device {name!r}; choose cpu, cuda, cuda:N or mps")
    if not available[kind]:
        raise InputError(f"this machine has no usable {kind}; choose --device cpu")
    try:
        where = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; choose cpu, cuda, cuda:N or mps") from None
    if kind == "cuda":
        torch.backends.cudnn.benchmark = False  # it would choose kernels by timing, and so results by chance
        torch.backends.cudnn.deterministic = True
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    return where


def take_source(config: Config, data: GivenData | None, progress: Progress | None = None) -> Source:
    """Return the data of a run: what the caller brought, or what the configuration names."""
    if isinstance(data, Source):
        source = data
    elif data is not None:
        source = source_from(*data)
    else:
        source = load_source(config.dataset, data_dir=config.data_dir, progress=progress)
    return replace(
        source,
        train=limited(source.train, config.train_samples, "train_samples"),
        test=limited(source.test, config.test_samples, "test_samples"),
    )


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


def limited(samples: Samples, count: int | None, setting: str) -> Samples:
    """Return a part of the samples, the same for every seed so that runs stay comparable."""
    if count is None or count == len(samples):
        return samples
    if count > len(samples):
        raise InputError(f"{setting} is {count}, but there are only {len(samples)} samples")
    chosen = np.sort(numpy_stream(0, "subset").permutation(len(samples))[:count])
    return ArraySamples(samples.read(chosen), samples.labels[torch.from_numpy(chosen)])


def take_partition(config: Config, source: Source, saved: Path | None) -> Partition:
    """Return who has what; a run that was started before keeps its partition."""
    if saved is not None:
        partition = load_partition(saved)
        if partition.fingerprint != source.train_fingerprint:
            raise InputError(
                f"the training data of {source.name} is not what {saved} was made of; "
                "give the same data (--data-dir names the folder with the files)"
            )
        return partition
    return make_partition(
        config.partition,
        source.train.labels,
        classes=len(source.classes),
        devices=config.devices,
        seed=config.seed,
        validation=config.validation,
        fingerprint=source.train_fingerprint,
    )


def take_model(config: Config, source: Source, given: GivenModel | None) -> Split:
    """Return the two halves at their start: what the caller brought, or what the configuration names."""
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


def arranged(model: nn.Module, layout: str) -> nn.Module:
    """Put a model's convolution kernels into a memory order; their values stay what they are."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[layout])
    return model


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


def make_common_ground(config: Config) -> CommonGround | None:
    """Return what holds the halves together, if the configuration asks for it.

    Devices multiply every gradient by their learning rate, so dividing the pull by it makes a step towards
    the leader what the configuration says, however fast the halves learn.
    """
    if config.probes == 0:
        return None
    return CommonGround(config.probes, config.probe_pull / config.device_optimizer.lr, config.probe_leaders)


def make_half(model: nn.Module, settings: OptimizerConfig, total_rounds: int) -> Half:
    """Return a half with the optimizer its settings name."""
    return Half(model, settings.maker(), settings.rate(total_rounds), settings.clip)


def make_fleet(
    config: Config,
    source: Source,
    partition: Partition,
    owners: Sequence[np.ndarray[Any, np.dtype[np.int64]]],
    model: nn.Module,
    total_rounds: int,
    where: torch.device,
    faults: Faults | None,
) -> LocalFleet:
    """Return devices that all start from one model, each with its own data."""
    augment = None if config.augment == "auto" else config.augment
    probes = Probes(source, seed=config.seed, per_batch=config.probes) if config.probes else None
    devices: dict[int, Device] = {}
    infos: dict[int, DeviceInfo] = {}
    for id, indices in enumerate(owners):
        shift = partition.shift[id] if partition.shift is not None else None
        batches = Batches(
            source.train,
            indices,
            seed=config.seed,
            device=id,
            batch_size=config.batch_size - config.probes,
            transform=make_transform(source, augment, shift),
        )
        half = make_half(copy.deepcopy(model), config.device_optimizer, total_rounds)
        layout = LAYOUTS[config.layout]
        devices[id] = Device(id, half, batches, seed=config.seed, where=where, layout=layout, probes=probes)
        if faults is not None and faults.kind != "flip" and id in faults.devices:
            devices[id] = FaultyDevice(devices[id], faults.kind, len(source.classes))
        counts = torch.bincount(source.train.labels[torch.from_numpy(indices)], minlength=len(source.classes))
        infos[id] = DeviceInfo(len(indices), tuple(counts.tolist()), batches.batches_per_pass)
    normal = make_evaluation_transform(source)

    def test() -> Iterator[Tensor]:
        return batched(source.test, np.arange(len(source.test)), normal)

    def validation() -> Iterator[Tensor]:
        return batched(source.train, partition.validation, normal)

    return LocalFleet(
        devices, infos, {"test": test, "validation": validation}, counts_traffic=len(owners) == config.devices
    )


def batched(
    samples: Samples, indices: np.ndarray[Any, np.dtype[np.int64]], transform: Any
) -> Iterator[Tensor]:
    """Yield samples as models see them, in order."""
    for start in range(0, len(indices), EVALUATION_BATCH):
        with global_stream(0, "evaluation"):  # for datasets that transform at random
            raw = samples.read(indices[start : start + EVALUATION_BATCH])
        yield transform(raw)


def run_identity(config: Config, fingerprint: str, partition: Partition) -> str:
    """Return what makes a run this run: its data, who has what, and all settings that are not defaults.

    Leaving the defaults out, a setting that a later version adds does not make old runs others.
    """
    values = config.model_dump(mode="json", exclude_defaults=True, exclude=INCIDENTAL)
    values["method"] = METHODS.canonical(config.method)
    own = config.own_settings()
    text = json.dumps({"config": values, "parameters": own, "data": fingerprint}, sort_keys=True)
    sha = hashlib.sha256(text.encode())
    for indices in (*partition.devices, partition.validation):
        sha.update(f"{len(indices)};".encode() + indices.astype("<i8").tobytes())
    sha.update(repr(partition.shift).encode())
    return sha.hexdigest()
