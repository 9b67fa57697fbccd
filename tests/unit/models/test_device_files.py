"""The states of many devices in few files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gapsl.common.errors import InputError
from gapsl.common.tensors import write_tensors
from gapsl.models.device_files import devices_in, read_device, read_devices, write_devices


def state_of(device: int) -> dict[str, torch.Tensor]:
    weights = torch.full((2, 3), float(device))
    state = {"model.weight": weights, "drawn": torch.tensor(device)}
    return state | (
        {"optimizer.0.momentum_buffer": -weights} if device % 3 else {}
    )  # some have not trained yet


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_whoever_writes_which_devices_they_are_read_by_anybody(tmp_path: Path) -> None:
    for part in (range(100), range(100, 131)):
        write_devices(tmp_path, {device: state_of(device) for device in part})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "devices-0000-0063.safetensors",
        "devices-0064-0099.safetensors",
        "devices-0100-0130.safetensors",
    ]
    assert list(devices_in(tmp_path)) == list(range(131))
    for wanted in (range(131), range(60, 110), [3]):
        found = dict(read_devices(tmp_path, wanted))
        assert list(found) == list(wanted)
        assert all(same(found[device], state_of(device)) for device in wanted)


def test_devices_that_do_not_follow_each_other_go_into_files_of_their_own(tmp_path: Path) -> None:
    write_devices(tmp_path, {device: state_of(device) for device in (7, 1, 2)})
    assert {device: path.name for device, path in devices_in(tmp_path).items()} == {
        1: "devices-0001-0002.safetensors",
        2: "devices-0001-0002.safetensors",
        7: "devices-0007-0007.safetensors",
    }


def test_a_file_of_one_device_by_an_older_version_is_read(tmp_path: Path) -> None:
    write_tensors(tmp_path / "device-0003.safetensors", state_of(3))
    (tmp_path / "state.json").touch()
    assert list(devices_in(tmp_path)) == [3]
    assert same(read_device(tmp_path, 3), state_of(3))


def test_a_device_that_is_nowhere_is_named(tmp_path: Path) -> None:
    write_devices(tmp_path, {0: state_of(0)})
    with pytest.raises(InputError, match="no state of device 4; put it back from a copy"):
        read_device(tmp_path, 4)
