"""From a configuration to a run in this process."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gapsl.assembly import (
    GivenData,
    GivenModel,
    Indices,
    arranged,
    batched,
    checked,
    compute_device,
    make_device,
    make_half,
    make_probes,
    take_model,
    take_partition,
    take_source,
)
from gapsl.data import Partition, Source, make_evaluation_transform
from gapsl.data.download import Progress
from gapsl.errors import InputError
from gapsl.fleets.local import LocalFleet
from gapsl.losses import check_loss, make_losses
from gapsl.models import Split
from gapsl.strategies.base import Setting, Strategy
from gapsl.strategies.common_ground import CommonGround
from gapsl.strategies.exchange import DeviceInfo
from gapsl.strategies.passes import Loss, Passes, cross_entropy
from gapsl.strategies.registry import METHODS
from gapsl.training.config import Config
from gapsl.training.device import Device
from gapsl.training.faults import Faults, make_faults
from gapsl.training.fleet import Split as EvaluationSplit
from gapsl.training.loop import Training, participants

DEFAULT_EPOCHS = 20
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

# Settings that may change between two processes of one run without making it another.
INCIDENTAL = {"data_dir", "label", "tensorboard", "checkpoint_every", "keep_checkpoints"}


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
    refuse_useless(config, strategy_class, partition)
    if config.probes and any(isinstance(module, BATCH_NORMS) for module in halves.device.modules()):
        raise InputError(
            "probes would be part of the devices' batch statistics; use norm = group (or none), or probes = 0"
        )
    present = participants(config.devices, config.participation)
    per_epoch = math.ceil(sum(partition.sizes) / (present * (config.batch_size - config.probes)))
    total_rounds = config.rounds or (config.epochs or DEFAULT_EPOCHS) * per_epoch
    owners = [np.sort(np.concatenate(partition.devices))] if strategy_class.pooled else partition.devices
    faults = make_faults(config.faults, devices=config.devices, seed=config.seed)
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


def refuse_useless(config: Config, strategy: type[Strategy], partition: Partition) -> None:
    """Refuse settings that would do nothing with a method."""
    if strategy.pooled and partition.shift is not None:
        raise InputError(
            f"{config.method} has all data in one place, so no device shifts it ({partition.spec}); "
            "leave out the +shift, or this method"
        )
    if strategy.pooled and config.faults != "none":
        raise InputError(
            f"{config.method} has no devices that could misbehave; leave out faults, or this method"
        )
    if strategy.in_turn and config.probes:
        raise InputError(
            f"{config.method} has one device at a time, and nobody to agree with on probes; set probes = 0"
        )
    if strategy.one_loss and config.calibration != "none" and config.calibration_for == "devices":
        raise InputError(
            f"in {config.method} devices get the gradient of the server's own loss; "
            "set calibration_for = both, or calibration = none"
        )


def make_common_ground(config: Config) -> CommonGround | None:
    """Return what holds the halves together, if the configuration asks for it.

    SGD multiplies every gradient by the learning rate, so dividing the pull by it makes a step towards the
    leader what the configuration says, however fast the halves learn. AdamW takes steps as long as its rate,
    and the quotient is how much of them the pull has against the loss.
    """
    if config.probes == 0:
        return None
    return CommonGround(config.probes, config.probe_pull / config.device_optimizer.lr, config.probe_leaders)


def make_fleet(
    config: Config,
    source: Source,
    partition: Partition,
    owners: Sequence[Indices],
    model: nn.Module,
    total_rounds: int,
    where: torch.device,
    faults: Faults | None,
) -> LocalFleet:
    """Return devices that all start from one model, each with its own data."""
    probes = make_probes(config, source)
    devices: dict[int, Device] = {}
    infos: dict[int, DeviceInfo] = {}
    for id, indices in enumerate(owners):
        shift = partition.shift[id] if partition.shift is not None else None
        devices[id], infos[id] = make_device(
            id, config, source, indices, model, total_rounds, where, probes=probes, shift=shift, faults=faults
        )
    normal = make_evaluation_transform(source)

    def test() -> Iterator[Tensor]:
        return batched(source.test, np.arange(len(source.test)), normal)

    def validation() -> Iterator[Tensor]:
        return batched(source.train, partition.validation, normal)

    return LocalFleet(
        devices, infos, {"test": test, "validation": validation}, counts_traffic=len(owners) == config.devices
    )


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
