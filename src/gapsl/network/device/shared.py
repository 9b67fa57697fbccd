"""A device whose data are its share of a dataset that everybody has: to try things out, and to compare."""

from __future__ import annotations

import json

import numpy as np

from gapsl.network.device.device_data import DataPlace, HeldOut
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.run.config import make_config, merge
from gapsl.run.parts import take_partition, take_source


def shared_place(welcome: wire.Welcome, data_dir: str | None) -> DataPlace:
    """Return a place with the part that the configuration's partition gives this device."""
    own = {} if data_dir is None else {"data_dir": data_dir}
    config = make_config(merge(json.loads(welcome.config), own))
    source = take_source(config, None)
    partition = take_partition(config, source, None)
    sets = {
        wire.Evaluate.TEST: HeldOut(source.test, np.arange(len(source.test)), labelled=False),
        wire.Evaluate.VALIDATION: HeldOut(source.train, partition.validation, labelled=False),
    }
    id, shifts = welcome.device, partition.shift
    shift = None if shifts is None else shifts[id]
    return DataPlace(id, config, source, partition.devices[id], sets, shift)
