"""Where a device works: its configuration, its samples, and the sets it can be tested with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from gapsl.data import Samples, Shift, Source, make_evaluation_transform
from gapsl.device.device import Device
from gapsl.device.exchange import DeviceInfo
from gapsl.device.faults import make_faults
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.run.config import Config
from gapsl.run.parts import EVALUATION_BATCH, Indices, compute_device, ends, make_device, make_probes


class HeldOut(NamedTuple):
    """Samples that a device is tested with, and whether the server has to be told their labels."""

    samples: Samples
    indices: Indices
    labelled: bool


class DataPlace:
    """A place with data, from which the device can be built again as it was at the start of the run."""

    def __init__(
        self,
        id: int,
        config: Config,
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
        half, head = ends(config, self._source, self._where)
        return make_device(
            self._id,
            config,
            self._source,
            self._indices,
            half,
            total_rounds,
            self._where,
            probes=self._probes,
            shift=self._shift,
            faults=make_faults(config.faults, devices=config.devices, seed=config.seed),
            head=head,
        )
