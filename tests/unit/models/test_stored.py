"""Training starts from runs and exports: per device from a run, one for all from an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quick import QUICK
from small_runs import LEARNS, copy_of, run_of
from torch import Tensor

import gapsl
from gapsl.common.errors import InputError
from gapsl.run.api import compose
from gapsl.run.build import make_parts
from gapsl.run.local_fleet import make_fleet


def started(tmp_path: Path, method: str = "psl", **settings: Any) -> dict[str, dict[str, Tensor]]:
    """Return the weights that a run begins with, by part."""
    config = compose(words={"method": method, **QUICK, **LEARNS, **settings})
    parts = make_parts(config)
    fleet = make_fleet(parts)
    found = {"server": parts.model.server.state_dict()}
    for number, device in fleet._devices.items():
        found[f"device-{number:04d}"] = device.part.model.state_dict()
        if parts.head is not None:
            found[f"head-{number:04d}"] = device.head.model.state_dict()
    return found


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_every_device_starts_from_its_own_model_of_a_run(tmp_path: Path) -> None:
    run = run_of("psl")
    before, now = gapsl.trained(run), started(tmp_path, pretrained=str(run))
    assert before.keys() == now.keys()
    assert all(same(before[part], now[part]) for part in before)
    assert not same(now["device-0000"], now["device-0001"])


def test_all_devices_start_from_the_one_model_of_an_export(tmp_path: Path) -> None:
    gapsl.export(run_of("psl"), tmp_path / "model", client="merged")
    model, now = gapsl.load(tmp_path / "model"), started(tmp_path, pretrained=str(tmp_path / "model"))
    assert all(same(now[f"device-{number:04d}"], model.clients[0].state_dict()) for number in range(3))
    assert same(now["server"], model.server.state_dict())
    file = started(tmp_path, pretrained=str(tmp_path / "model" / "model.safetensors"))
    assert all(same(now[part], file[part]) for part in now)


def test_heads_go_with_their_devices(tmp_path: Path) -> None:
    run = run_of("psl", labels="device")
    now = started(tmp_path, labels="device", pretrained=str(run))
    model = gapsl.load(run, 2)
    assert same(now["head-0002"], model.heads[0].state_dict())
    assert not same(now["head-0001"], now["head-0002"])
    with pytest.raises(InputError, match=r"each its own \(labels = device\).*gapsl export"):
        started(tmp_path, pretrained=str(run))
    gapsl.export(run, tmp_path / "model", client=2)
    assert same(
        started(tmp_path, pretrained=str(tmp_path / "model"))["device-0000"], model.clients[0].state_dict()
    )


def test_a_finished_run_of_sfl_has_one_server_side_model(tmp_path: Path) -> None:
    run = run_of("sfl")
    assert same(started(tmp_path, pretrained=str(run))["server"], gapsl.trained(run)["server-0000"])
    unfinished = copy_of(run, tmp_path / "run")
    (checkpoint,) = (unfinished / "checkpoints").glob("round-*40")
    other = run_of("sfl", seed=1) / "checkpoints" / checkpoint.name / "server-0001.safetensors"
    (checkpoint / "server-0001.safetensors").write_bytes(other.read_bytes())
    with pytest.raises(InputError, match=r"have not been averaged.*--client merged"):
        started(tmp_path, pretrained=str(unfinished))


def test_training_goes_on_from_where_it_was(tmp_path: Path) -> None:
    run = run_of("sfl", rounds=150)
    before = gapsl.status(run)
    assert before is not None
    settings = {
        **QUICK,
        **LEARNS,
        "rounds": 1,
        "server_optimizer": {"lr": 1e-6},
        "device_optimizer": {"lr": 1e-6},
    }
    tuned = gapsl.train(method="sfl", pretrained=str(run), **settings)
    fresh = gapsl.train(method="sfl", **settings)
    assert tuned.final.device_mean == pytest.approx(before.accuracy, abs=1.5 / 40), "to a test picture"
    assert tuned.final.device_mean > fresh.final.device_mean + 0.1


def test_one_part_alone_is_loaded_into_its_part(tmp_path: Path) -> None:
    gapsl.export(run_of("psl"), tmp_path / "model", client=1)
    (tmp_path / "device").mkdir()
    for name in ("client.safetensors", "export.json"):
        (tmp_path / "device" / name).write_bytes((tmp_path / "model" / name).read_bytes())
    text = (tmp_path / "device" / "export.json").read_text()
    lines = [line for line in text.splitlines() if "server.safe" not in line and "model.safe" not in line]
    lines = [line.rstrip(",") if "client.safe" in line else line for line in lines]
    (tmp_path / "device" / "export.json").write_text("\n".join(lines))
    now, plain = started(tmp_path, pretrained=str(tmp_path / "device")), started(tmp_path)
    assert same(now["device-0000"], gapsl.load(tmp_path / "model").clients[0].state_dict())
    assert same(now["server"], plain["server"])


def test_what_cannot_be_started_from_is_refused(tmp_path: Path) -> None:
    run = run_of("psl")
    with pytest.raises(InputError, match=r"models of 3 devices, and none for device 3.*gapsl export"):
        started(tmp_path, pretrained=str(run), devices=4)
    with pytest.raises(InputError, match="does not fit the model"):
        started(tmp_path, pretrained=str(run), width=0.5)
    with pytest.raises(InputError, match=r"does not fit the model|no parameter in common"):
        started(tmp_path, pretrained=str(run), cut=2)
    with pytest.raises(InputError, match="neither a run in it nor an export"):
        started(tmp_path, pretrained=str(tmp_path))
    with pytest.raises(InputError, match="no weights file, run or export"):
        started(tmp_path, pretrained=str(tmp_path / "nothing"))
    gapsl.export(run, tmp_path / "many", client="ensemble")
    with pytest.raises(InputError, match="is an ensemble"):
        started(tmp_path, pretrained=str(tmp_path / "many"))
    gapsl.export(run, tmp_path / "one", client=0)
    file = tmp_path / "one" / "server.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputError, match="truncated"):
        started(tmp_path, pretrained=str(tmp_path / "one"))


def test_a_model_of_ones_own_starts_from_its_run(tmp_path: Path) -> None:
    def parts() -> gapsl.Split:  # both with the same names
        front = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
        return gapsl.Split(front, torch.nn.Sequential(torch.nn.Linear(6, 2)))

    labels = torch.arange(40) % 2
    data = torch.utils.data.TensorDataset(torch.randn(40, 4) + labels[:, None], labels)
    given: dict[str, Any] = {"model": parts(), "dataset": (data, data), "devices": 2, "partition": "iid"}
    gapsl.train(rounds=3, method="psl", out=tmp_path / "run", **given)
    again = gapsl.train(
        rounds=1, method="frozen", out=tmp_path / "again", pretrained=str(tmp_path / "run"), **given
    )
    assert again is not None
    before, now = gapsl.trained(tmp_path / "run"), gapsl.trained(tmp_path / "again")
    assert same(before["device-0001"], now["device-0001"])
