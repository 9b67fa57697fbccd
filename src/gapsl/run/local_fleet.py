"""From the parts of a run to its devices on this machine, in one process or several, or on a Ray cluster."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.data import make_evaluation_transform
from gapsl.device.build import batched, make_device, make_probes
from gapsl.device.device import Device
from gapsl.device.exchange import DeviceInfo
from gapsl.device.graphs import MEGABYTE, GraphBudget, graph_bytes
from gapsl.fleets.local import LocalFleet
from gapsl.fleets.processes import ProcessFleet
from gapsl.methods.registry import METHODS
from gapsl.run.config import Config
from gapsl.run.loop import participants
from gapsl.run.parts import Parts


def make_fleet(parts: Parts, kind: Callable[..., LocalFleet] | None = None) -> LocalFleet:
    """Return devices of this machine that all start from one model, each with its own data."""
    config, source, partition = parts.config, parts.source, parts.partition
    processes = 1 if kind is not None else processes_of(parts)
    if kind is None:
        kind = LocalFleet if processes == 1 else partial(ProcessFleet, processes)
        if config.fleet == "ray" and why_alone(parts) is None:
            from gapsl.fleets.ray import RayFleet

            given = config.processes != "auto" and "processes" in config.model_fields_set
            kind = partial(RayFleet, config.ray_address, processes if given else None)
    graphs = graph_budget(parts, processes)
    probes = make_probes(config, source)
    devices: dict[int, Device] = {}
    infos: dict[int, DeviceInfo] = {}
    for id, indices in enumerate(parts.owners):
        shift = partition.shift[id] if partition.shift is not None else None
        devices[id], infos[id] = make_device(
            id,
            config,
            source,
            indices,
            parts.model.device,
            parts.total_rounds,
            parts.where,
            probes=probes,
            shift=shift,
            faults=parts.faults,
            head=parts.head,
            graphs=graphs,
        )
    normal = make_evaluation_transform(source)

    def test() -> Iterator[Tensor]:
        return batched(source.test, np.arange(len(source.test)), normal)

    def validation() -> Iterator[Tensor]:
        return batched(source.train, partition.validation, normal)

    own = len(parts.owners) == config.devices  # not one pool of everybody's data
    return kind(devices, infos, {"test": test, "validation": validation}, counts_traffic=own)


def graph_budget(parts: Parts, processes: int) -> GraphBudget:
    """Return how many graphs each process may keep, of the size that one device's has."""
    config, source = parts.config, parts.source
    shape = (config.batch_size, *source.input_shape)
    inputs = torch.zeros(shape, device=parts.where, dtype=next(parts.model.device.parameters()).dtype)
    each = graph_bytes(copy.deepcopy(parts.model.device), inputs)
    return GraphBudget(config.graph_memory * MEGABYTE // processes, each)


def processes_of(parts: Parts) -> int:
    """Return how many processes compute the devices; one, where they cannot be computed side by side."""
    asked, devices = parts.config.processes, participants(parts.config.devices, parts.config.participation)
    if asked != "auto" and asked > devices:
        raise InputError(f"processes = {asked}, but a round has {devices} devices; use {devices} or fewer")
    if parts.config.ray_address is not None and parts.config.fleet != "ray":
        raise InputError("ray_address is for devices on a Ray cluster; set fleet = ray")
    if asked == 1 or why_alone(parts) is not None:
        return 1
    return min(devices, cores()) if asked == "auto" else asked


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spreads(config: Config) -> bool:
    """Say whether devices are to be computed in more than this process."""
    return config.processes != 1 or config.fleet != "local"


def why_alone(parts: Parts) -> str | None:
    """Say why devices cannot be computed side by side in several processes, if so."""
    method = METHODS[parts.config.method]
    if not method.side_by_side or method.in_turn or method.pooled:
        return f"{parts.config.method} computes one device after another"
    if parts.head is not None:
        return "with labels = device the loss is not computed here"
    if parts.where.type != "cpu":
        return f"it computes on {parts.where.type}"
    if sys.platform != "linux" and parts.config.fleet != "ray":
        return f"processes that share memory and end with the run need Linux, not {sys.platform}"
    return None
