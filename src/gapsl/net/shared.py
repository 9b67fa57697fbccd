"""A device whose data are its share of a dataset that everybody has: to try things out, and to compare."""

from __future__ import annotations

import json

import numpy as np
from torch import Tensor

from gapsl.assembly import (
    EVALUATION_BATCH,
    compute_device,
    ends,
    make_device,
    make_probes,
    take_partition,
    take_source,
)
from gapsl.data import make_evaluation_transform
from gapsl.net import wire_pb2 as wire
from gapsl.strategies.exchange import DeviceInfo
from gapsl.training.config import make_config, merge
from gapsl.training.device import Device
from gapsl.training.faults import make_faults


class SharedWorkplace:
    """The configuration's dataset, of which the configuration's partition gives this device its part."""

    def __init__(self, welcome: wire.Welcome, data_dir: str | None) -> None:
        own = {} if data_dir is None else {"data_dir": data_dir}
        self.config = make_config(merge(json.loads(welcome.config), own))
        self.id = welcome.device
        self.source = take_source(self.config, None)
        self.partition = take_partition(self.config, self.source, None)
        self.where = compute_device(self.config.device)
        self._probes = make_probes(self.config, self.source)
        self._normal = make_evaluation_transform(self.source)
        _, self.info = self._made(1)

    def device(self, total_rounds: int) -> Device:
        """Return the device as it is at the start of the run."""
        return self._made(total_rounds)[0]

    def inputs(self, split: wire.Evaluate.Set, batch: int) -> tuple[Tensor, Tensor | None, bool]:
        """Return a batch of an evaluation set, and if it is the last."""
        test = split == wire.Evaluate.TEST
        samples = self.source.test if test else self.source.train
        indices = np.arange(len(samples)) if test else self.partition.validation
        chosen = indices[batch * EVALUATION_BATCH : (batch + 1) * EVALUATION_BATCH]
        return self._normal(samples.read(chosen)), None, (batch + 1) * EVALUATION_BATCH >= len(indices)

    def _made(self, total_rounds: int) -> tuple[Device, DeviceInfo]:
        config, shifts = self.config, self.partition.shift
        half, head = ends(config, self.source, self.where)
        return make_device(
            self.id,
            config,
            self.source,
            self.partition.devices[self.id],
            half,
            total_rounds,
            self.where,
            probes=self._probes,
            shift=None if shifts is None else shifts[self.id],
            faults=make_faults(config.faults, devices=config.devices, seed=config.seed),
            head=head,
        )
