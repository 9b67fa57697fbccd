"""Whose data, whose labels: devices that bring their own, and devices that keep their labels."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from network import SMALL, Devices, Served, parameter_server, trained_over_loopback
from PIL import Image

import gapsl
from gapsl.analysis.diagnose import diagnose, read_run
from gapsl.analysis.tables import results_table
from gapsl.common.errors import GapslError, InputError, Unavailable
from gapsl.data import load_source
from gapsl.network.device.agent import Patience
from gapsl.network.device.device_data import DeviceData, load_device_data
from gapsl.network.protocol import framing, settings
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.run.api import compose
from gapsl.run.evaluation import _from_counts
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer

OWN: dict[str, Any] = {key: SMALL[key] for key in ("model", "width", "devices", "batch_size")}
OWN |= {"method": "psl", "rounds": 40, "server_optimizer": {"lr": 0.05}, "device_optimizer": {"lr": 0.05}}
SHORT = Patience(first=0.05, longest=0.5, whole=2.0)  # with a server that has stopped
DESCRIBED = "described:1x8x8:" + ",".join(map(str, range(10)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three devices' images of digits: each has three classes of its own, and all have nines."""
    root = tmp_path_factory.mktemp("own")
    source = load_source("digits")
    images = (source.train.read(torch.arange(600))[:, 0] * 255).to(torch.uint8).numpy()
    labels = source.train.labels[:600].numpy()
    for device in range(3):
        for label in {device, device + 3, device + 6, 9}:
            chosen = np.flatnonzero(labels == label)[device * 15 : device * 15 + 15]
            for part, indices in (("train", chosen[:10]), ("test", chosen[10:])):
                folder = root / str(device) / part / str(label)
                folder.mkdir(parents=True)
                for index in indices:
                    Image.fromarray(images[index]).save(folder / f"{index}.png")
    return root


def bringing(folders: Path, state: Path) -> Devices:
    def load_data(name: str, welcome: wire.Welcome) -> DeviceData:
        return load_device_data(welcome, f"folder:{folders / name[-1]}")

    return Devices(state, load_data=load_data)


def test_devices_bring_their_data_and_the_public_test_set_is_sent_to_them(
    folders: Path, tmp_path: Path
) -> None:
    config = compose(words={**OWN, "dataset": "digits", "test_samples": 300})
    devices = bringing(folders, tmp_path / "state")
    result = trained_over_loopback(config, tmp_path, network={"data": "own"}, devices=devices)
    final = result.final
    assert ", own data, " in results_table([result]).title, "the partition is nobody's"
    assert len(final.device_accuracy) == 3
    assert final.local > final.device_mean > 0.1  # a device is better at what it has seen
    known = json.loads((tmp_path / "run" / "fleet.json").read_text())["devices"]
    assert known["1"] == {
        "samples": 40, "labels": [0, 10, 0, 0, 10, 0, 0, 10, 0, 10], "batches": 5, "tests": 20,
        "stored": 40,
    }  # fmt: skip
    assert not (tmp_path / "run" / "partition.json").exists()
    sets = sorted(path.name for path in (tmp_path / "state").glob("*/device-0/set-*"))
    assert sets == ["set-0-00000.safetensors", "set-0-00001.safetensors"]  # 300 samples in batches of 256


def test_a_server_without_any_data_measures_on_the_devices_own(folders: Path, tmp_path: Path) -> None:
    config = compose(words={**OWN, "dataset": DESCRIBED})
    devices = bringing(folders, tmp_path / "state")
    result = trained_over_loopback(config, tmp_path, network={"data": "own"}, devices=devices)
    final = result.final
    assert final.device_mean == final.local > 0.4
    assert final.ensemble is None and final.merged is None
    network = tmp_path / "run" / "network.yaml"
    network.write_text(network.read_text() + "names: [door, hall, yard]\n")
    run = read_run(RunFolder(tmp_path / "run"))
    assert run.setting("partition") == "own data" and run.who(1) == "hall (device 1)"
    assert run.labels is not None and run.labels.counts[1].tolist() == [0, 10, 0, 0, 10, 0, 0, 10, 0, 10]
    assert diagnose(run), "and it can be diagnosed"


def test_methods_that_share_parts_test_them_on_the_devices_own_samples(folders: Path, tmp_path: Path) -> None:
    config = compose(words={**OWN, "dataset": DESCRIBED, "method": "vanilla", "rounds": 4})
    devices = bringing(folders, tmp_path / "state")
    with parameter_server(tmp_path / "parameters", 3) as address:
        network = {"data": "own", "parameter_server": address}
        result = trained_over_loopback(config, tmp_path, network=network, devices=devices)
    assert len(result.final.device_accuracy) == 3


class Slow(DeviceData):
    """A place where an evaluation batch takes longer than it may."""

    def inputs(self, split: wire.Evaluate.Set, batch: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        time.sleep(0.5)
        return super().inputs(split, batch)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_nobody_can_be_evaluated_in_ends_in_words_or_when_it_is_asked_to(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(settings, "SLOW", 0.1)

    def load_data(name: str, welcome: wire.Welcome) -> DeviceData:
        place = load_device_data(welcome, f"folder:{folders / name[-1]}")
        place.__class__ = Slow
        return place

    class Watching(Observer):
        warnings = 0

        def warned(self, message: str) -> None:
            self.warnings += 1

    watching = Watching()
    config = compose(words={**OWN, "dataset": DESCRIBED, "rounds": 3, "checkpoint_every": 1})
    served = Served(
        config,
        tmp_path,
        network={"data": "own", "closing": "deadline:0.1"},
        devices=Devices(tmp_path / "state", load_data=load_data, patience=SHORT),
        observers=[watching],
        stop=lambda: stopped and watching.warnings > 0,
    )
    served.devices.start(served.port, "device-0", "device-1", "device-2")
    if stopped:
        with pytest.raises(AssertionError):  # no result
            served.result()
        assert watching.warnings == 1
    else:
        with pytest.raises(Unavailable, match="3 times no device could be evaluated after round 3"):
            served.result()


def test_a_device_that_is_not_tested_is_not_away() -> None:
    found = _from_counts({0: 0.5, 1: None}, [0, 1, 2])
    assert found.away == (2,) and found.local == 0.5
    assert found.device_accuracy == {0: 0.5}, "a number for each device that was tested"


def test_where_the_server_divides_a_dataset_a_device_with_another_part_is_refused(tmp_path: Path) -> None:
    def load_data(name: str, welcome: wire.Welcome) -> DeviceData:
        if name == "device-0":
            welcome.device = 1
        return load_device_data(welcome)

    said: list[str] = []
    devices = Devices(tmp_path / "state", load_data=load_data)
    config = compose(words={**SMALL, "method": "psl"})
    with pytest.raises(Unavailable, match="nothing from device-0"):
        trained_over_loopback(config, tmp_path, network={"patience": 8}, devices=devices, said=said)
    assert any("device-0 is refused: its data are not the" in text for text in said)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("described:1x8x8:0,1,2,3", "classes that the run does not have"),
        ("described:3x16x16:" + ",".join(map(str, range(10))), r"folder:PATH\?size=16"),
    ],
)
def test_data_that_do_not_fit_the_run_are_refused_on_the_device(
    folders: Path, tmp_path: Path, dataset: str, message: str
) -> None:
    source = load_source(dataset)
    welcome = wire.Welcome(
        config=compose(words={**OWN, "dataset": dataset}).for_device(),
        own_data=True,
        classes=source.classes,
        inputs=source.input_shape,
        mean=source.mean,
        std=source.std,
    )
    with pytest.raises(InputError, match=message):
        load_device_data(welcome, f"folder:{folders / '2'}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": None}, "set rounds = N"),
        ({"validation": 0.1}, "set validation = 0"),
        ({"faults": "flip:1"}, "leave out faults"),
    ],
)
def test_what_the_server_would_have_to_know_of_data_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    config = compose(words={**OWN, "dataset": DESCRIBED, **settings})
    with pytest.raises(InputError, match=message):
        trained_over_loopback(config, tmp_path, network={"data": "own"}, started=lambda port: None)


def test_described_data_cannot_be_trained_on_here() -> None:
    with pytest.raises(InputError, match="has no samples"):
        gapsl.train(**{**OWN, "dataset": DESCRIBED})


@pytest.mark.parametrize("method", ["psl", "gapsl"])
@pytest.mark.parametrize("penalty", ["none", "finite"])
def test_with_labels_on_the_devices_the_weights_are_those_of_one_process(
    tmp_path: Path, method: str, penalty: str
) -> None:
    settings = {"labels": "device", "method": method, "gapsl": {"penalty": penalty, "lambda": 0.3}}
    config = compose(words={**SMALL, **settings})
    local = gapsl.train(config)
    assert local is not None
    result = trained_over_loopback(config, tmp_path)
    for name in ("weights_sha256", "device_mean", "ensemble", "bytes_sent", "bytes_received"):
        assert getattr(result.final, name) == getattr(local.final, name)


def test_labels_that_stay_on_the_device_are_never_sent(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[wire.FromDevice] = []
    read = wire.FromDevice.FromString

    def listened(kind: Any, data: bytes) -> Any:
        message = deserialize(kind, data)
        if isinstance(message, wire.FromDevice):
            heard.append(read(data))
        return message

    deserialize = framing.deserialize
    monkeypatch.setattr(framing, "deserialize", listened)
    config = compose(words={**OWN, "dataset": DESCRIBED, "labels": "device"})
    devices = bringing(folders, tmp_path / "state")
    result = trained_over_loopback(config, tmp_path, network={"data": "own"}, devices=devices)
    assert result.final.device_mean > 0.4  # of what devices have counted themselves
    kinds = {message.WhichOneof("message") for message in heard}
    assert {"ready", "upload", "judged", "scored"} <= kinds
    for message in heard:
        assert not message.upload.labels and not message.scored.labels and not message.ready.label_counts


def test_a_device_without_data_says_what_to_bring(tmp_path: Path) -> None:
    with pytest.raises(GapslError, match="--data folder:PATH"):
        load_device_data(wire.Welcome(own_data=True, classes=["cat", "dog"]))
