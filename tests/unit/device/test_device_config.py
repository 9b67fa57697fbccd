"""The settings a device gets: those it needs, and no method; settings that it does not know are named."""

import json

import pytest

from gapsl.common.errors import InputError
from gapsl.device.config import DeviceConfig, read_device_config
from gapsl.run.api import compose


def test_a_device_gets_the_settings_it_needs_and_no_method():
    config = compose(
        words={"method": "gapsl", "seed": 3, "gapsl": {"eta": 0.3}, "device_optimizer": {"lr": 0.5}}
    )
    sent = config.for_device()
    assert set(json.loads(sent)) == set(DeviceConfig.model_fields)
    found, unknown = read_device_config(sent)
    assert (found.seed, found.device_optimizer.lr, unknown) == (3, 0.5, [])
    assert found == DeviceConfig(**{name: getattr(config, name) for name in DeviceConfig.model_fields})


def test_settings_of_a_newer_server_are_named_and_ignored():
    sent = json.loads(compose(words={"seed": 3}).for_device())
    sent["sparsity"] = 0.5
    sent["device_optimizer"]["nesterov"] = True
    found, unknown = read_device_config(json.dumps(sent))
    assert found == read_device_config(compose(words={"seed": 3}).for_device())[0]
    assert unknown == ["device_optimizer.nesterov", "sparsity"]


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"seed": -1}', '{"device_optimizer": 3}', '{"norm": "layer"}', "[" * 100_000]
)
def test_settings_that_cannot_be_are_refused_with_a_way_out(text):
    with pytest.raises(InputError, match="install the same gapsl on both"):
        read_device_config(text)
