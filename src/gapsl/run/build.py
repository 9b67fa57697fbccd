"""From a configuration to a run in this process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.data import Partition
from gapsl.data.download import Progress
from gapsl.device.build import (
    arranged,
    compute_device,
    take_partition,
)
from gapsl.device.faults import make_faults
from gapsl.device.model_info import describe_model
from gapsl.fleets.base import Fleet, LabelPrivate
from gapsl.fleets.base import Split as EvaluationSplit
from gapsl.fleets.spread import SpreadFleet
from gapsl.methods.base import RunInfo
from gapsl.methods.registry import METHODS
from gapsl.methods.server_model import ServerModel, cross_entropy
from gapsl.methods.sketched import SketchedServerModel
from gapsl.models import Split
from gapsl.models.cut import behead
from gapsl.models.part import make_part
from gapsl.options.assemble import make_losses, with_options
from gapsl.options.compatibility import Circumstances, refuse_incompatible, sketches
from gapsl.options.losses import HeadLoss, check_loss
from gapsl.run.config import INCIDENTAL, Config
from gapsl.run.folder import RunFolder
from gapsl.run.local_fleet import make_fleet, spreads, why_alone
from gapsl.run.loop import Plan, Training, participants
from gapsl.run.observers import Observer
from gapsl.run.parts import Given, Parts, checked, take_model, take_source

DEFAULT_EPOCHS = 20
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def prepare(
    config: Config,
    given: Given | None = None,
    *,
    progress: Progress | None = None,
    observers: Sequence[Observer] = (),
) -> Training:
    """Build a run whose devices are in this process, checking everything before the first round."""
    parts = make_parts(config, given, progress=progress)
    return make_training(parts, make_fleet(parts), observers=observers)


def make_parts(
    config: Config,
    given: Given | None = None,
    *,
    partition_file: Path | None = None,
    progress: Progress | None = None,
    own_data: bool = False,
) -> Parts:
    """Return the parts of a run, refusing what cannot be trained; with `own_data` devices bring theirs.

    `given` replaces what the configuration names; `partition_file` is a partition to go on with, if it is
    there.
    """
    given = given or Given()
    where = compute_device(config.device)
    source = take_source(config, given.dataset, progress)
    if source.described and not own_data:
        raise InputError(f"{config.dataset} has no samples; serve it to devices that bring their own data")
    saved = partition_file if partition_file is not None and partition_file.exists() else None
    partition = undivided(config) if own_data else take_partition(config, source, saved)
    model = take_model(config, source, given.model)
    checked(model, config, source)
    model = Split(*(arranged(part, config, where) for part in (model.device, model.server)))

    if config.evaluate_devices is not None and config.evaluate_devices > config.devices:
        raise InputError(
            f"evaluate_devices is {config.evaluate_devices}, but there are {config.devices} devices; "
            f"use {config.devices} or fewer"
        )
    check_loss(given.loss)
    circumstances = Circumstances(
        given.loss,
        shift=None if partition.shift is None else partition.spec,
        batch_norm=any(isinstance(module, BATCH_NORMS) for module in model.device.modules()),
    )
    refuse_incompatible(config.method, config, config.parameters(), circumstances)
    head: nn.Module | None = None
    if config.labels == "device":
        middle, head = behead(model.server)
        model = Split(model.device, middle)
    pooled = METHODS[config.method].pooled
    owners = [np.sort(np.concatenate(partition.devices))] if pooled else partition.devices
    faults = make_faults(config.faults, devices=config.devices, seed=config.seed)
    parts = Parts(config, source, partition, owners, model, 0, where, faults, given.loss, head, own_data)
    planned = config.rounds or (config.epochs or DEFAULT_EPOCHS) * parts.epoch(sum(partition.sizes))
    return replace(parts, total_rounds=max(config.extended_to or 0, planned))


def make_training(
    parts: Parts,
    fleet: Fleet,
    *,
    folder: RunFolder | None = None,
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
    custom: Mapping[str, str] | None = None,
) -> Training:
    """Return the run of these parts with a fleet whose devices are there.

    Its files go to `folder`, `observers` are told how it goes on, `stop` is asked after every round, and
    `custom` names what the caller brought.
    """
    config, source, partition, model = parts.config, parts.source, parts.partition, parts.model
    per_epoch = parts.epoch(sum(info.samples for info in fleet.devices.values()))
    loss = parts.loss
    if parts.head is not None:
        assert isinstance(fleet, LabelPrivate)
        loss = HeadLoss(fleet.head_loss)
    losses = make_losses(loss, config, fleet.devices, parts.faults, classes=len(source.classes))
    part = make_part(model.server, config.server_optimizer, parts.total_rounds)
    passes: dict[str, Any] = {"seed": config.seed, "loss": losses.server, "device_loss": losses.device}
    passes["clock"] = fleet.clock
    at_once = participants(config.devices, config.participation)
    sketched = sketches(config.method, config, at_once * part.size * part.parameters[0].element_size())
    if sketched:
        by_data = config.reduction == "samples"
        weights = {id: float(info.samples) if by_data else 1.0 for id, info in fleet.devices.items()}
        averages = config.reduction != "sum"
        server: ServerModel = SketchedServerModel(part, weights=weights, averages=averages, **passes)
    else:
        server = ServerModel(part, **passes)
    run = RunInfo(
        seed=config.seed,
        total_rounds=parts.total_rounds,
        rounds_per_epoch=per_epoch,
        batches_per_round=at_once,
        devices=fleet.devices,
        reduction=config.reduction,
        device_gradient=config.device_gradient,
        parameters=config.parameters(),
        cross_entropy=parts.loss is cross_entropy,
        classes=len(source.classes),
        robust=config.robust,
        robust_trim=config.robust_trim,
    )
    strategy = with_options(METHODS[config.method](server, run), config, losses)
    if isinstance(fleet, SpreadFleet):
        fleet.serve(strategy, at_once=run.batches_per_round)
    if parts.own_data:
        counts = torch.tensor([info.label_counts for _, info in sorted(fleet.devices.items())])
    else:
        counts = torch.from_numpy(partition.label_counts(source.train.labels, len(source.classes)))
    labels: dict[EvaluationSplit, Tensor] = {"test": source.test.labels[: 0 if source.described else None]}
    if len(partition.validation):
        labels["validation"] = source.train.labels[torch.from_numpy(partition.validation)]
    notices = []
    if spreads(config) and (alone := why_alone(parts)):
        notices.append(f"the run stays in one process: {alone}")
    if sketched and config.gradient_rows == "auto":
        notices.append("a round's gradients would take over 2 GiB, so their angles come from sketches")
    plan = Plan(
        config=config,
        total_rounds=parts.total_rounds,
        rounds_per_epoch=per_epoch,
        labels=labels,
        proportions=counts.double() / counts.sum(dim=1, keepdim=True),
        identity=run_identity(config, source.fingerprint, partition),
        custom=custom or {},
        classes=tuple(source.classes),
        notice="; ".join(notices) or None,
    )
    if folder is not None and not folder.partition_file.exists() and partition.samples:
        partition.save(folder.partition_file)
    if folder is not None:
        given = custom or {}
        info = describe_model(config, source, own_model=given.get("model", ""), own_data="dataset" in given)
        info.save(folder.path)
    return Training(plan, strategy, fleet, folder=folder, observers=observers, stop=stop)


def undivided(config: Config) -> Partition:
    """Return who has what where that is not for the server to say: devices bring their own data."""
    if config.rounds is None:
        raise InputError("the server does not know how much data its devices have; set rounds = N")
    if config.validation:
        raise InputError("devices with data of their own hold nothing out; set validation = 0")
    if config.faults != "none":
        raise InputError("faults are for simulated devices; leave out faults")
    nothing = np.zeros(0, dtype=np.int64)
    return Partition((nothing,) * config.devices, nothing, None, "own", config.seed, 0)


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
