"""The fleet of a run whose devices are elsewhere: what they are told, and what is expected of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from gapsl.data import make_evaluation_transform
from gapsl.device.build import LAYOUTS, batched
from gapsl.fleets.remote import EvaluationInputs, RemoteFleet
from gapsl.models.half import model_bytes
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PROTOCOL
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.settings import CODECS, COMPRESSIONS, Network
from gapsl.network.server.dispatcher import Dispatcher
from gapsl.network.server.fleet_state import FleetState
from gapsl.network.server.service import Roster
from gapsl.run.build import Parts
from gapsl.run.folder import RunFolder
from gapsl.run.served_run import run_name


def make_remote_fleet(
    parts: Parts,
    network: Network,
    folder: RunFolder,
    roster: Roster,
    *,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> tuple[RemoteFleet, wire.Welcome]:
    """Return a fleet that nobody has joined yet, and what those are told who join."""
    cut, features = shapes_at_cut(parts)
    welcome = make_welcome(parts, network, run_name(folder), features)
    dispatcher = Dispatcher(
        roster,
        FleetState(folder.fleet_file, roster.names, known_labels(parts)),
        TensorContract.of(welcome, parts.config, cut),
        policy=network.round_policy(),
        total_rounds=parts.total_rounds,
        patience=network.patience,
        stop=stop,
        tell=tell,
    )
    fleet = RemoteFleet(
        dispatcher,
        merges=bool(network.parameter_server),
        model_bytes=model_bytes(parts.halves.device),
        sizes=common_sizes(parts),
        sets=public_sets(parts) if network.data == "own" else None,
        where=parts.where,
        layout=LAYOUTS[parts.config.layout],
    )
    return fleet, welcome


def make_welcome(parts: Parts, network: Network, run: str, features: tuple[int, ...]) -> wire.Welcome:
    """Return what every device is told of the run."""
    return wire.Welcome(
        protocol=PROTOCOL,
        run=run,
        devices=parts.config.devices,
        config=parts.config.for_device(),
        classes=parts.source.classes,
        inputs=parts.source.input_shape,
        activations=CODECS[network.activations],
        gradients=CODECS[network.gradients],
        compression=COMPRESSIONS[network.compression],
        parameter_server=network.parameter_server,
        mean=parts.source.mean,
        std=parts.source.std,
        own_data=network.data == "own",
        features=features,
    )


def addressed(welcome: wire.Welcome, device: int) -> wire.Welcome:
    """Return a welcome with the number of the device that it is for."""
    copy = wire.Welcome()
    copy.CopyFrom(welcome)
    copy.device = device
    return copy


def known_labels(parts: Parts) -> dict[int, tuple[int, ...]]:
    """Return how many of each class devices have, where all have one dataset."""
    if not parts.partition.samples:
        return {}
    counts = parts.partition.label_counts(parts.source.train.labels, len(parts.source.classes))
    return {device: tuple(row) for device, row in enumerate(counts.tolist())}


def common_sizes(parts: Parts) -> dict[wire.Evaluate.Set, int]:
    """Return how many samples the evaluation sets have that are the same for all devices."""
    test = 0 if parts.source.described else len(parts.source.test)
    return {wire.Evaluate.TEST: test, wire.Evaluate.VALIDATION: len(parts.partition.validation)}


def public_sets(parts: Parts) -> dict[wire.Evaluate.Set, EvaluationInputs]:
    """Return the evaluation sets that the server has and its devices do not."""
    source = parts.source
    if source.described:
        return {}
    dtype = next(parts.halves.device.parameters()).dtype

    def test() -> Iterator[Tensor]:
        inputs = batched(source.test, np.arange(len(source.test)), make_evaluation_transform(source))
        return (batch.to(dtype) for batch in inputs)

    return {wire.Evaluate.TEST: test}


def shapes_at_cut(parts: Parts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of one sample's activations, and before the head where devices have it."""
    with torch.no_grad():
        sample = torch.zeros(1, *parts.source.input_shape, dtype=next(parts.halves.device.parameters()).dtype)
        at_cut = parts.halves.device.eval()(sample.to(parts.where))
        parts.halves.device.train()
        if parts.head is None:
            return tuple(at_cut.shape[1:]), ()
        features = parts.halves.server.eval()(at_cut)
        parts.halves.server.train()
    return tuple(at_cut.shape[1:]), tuple(features.shape[1:])
