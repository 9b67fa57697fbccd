"""What a device does when its server is gone for a while, comes back otherwise, or fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from network import SMALL, Devices, Served, parameter_server, trained_over_loopback

import gapsl
from gapsl.network.device.agent import Patience
from gapsl.network.protocol.settings import make_network
from gapsl.run.api import compose
from gapsl.run.config import Config
from gapsl.run.observers import Observer
from gapsl.run.serve import Listening, train_remotely

NAMES = ("device-0", "device-1", "device-2")


class Stopping(Observer):
    """Stops a server after so many rounds, or when it is told to."""

    def __init__(self, rounds: int) -> None:
        self.left, self.asked = rounds, False

    def round(self, record: Any) -> None:
        self.left -= 1

    def __call__(self) -> bool:
        return self.asked or self.left <= 0


def served_until(stop: Stopping, config: Config, folder: Path, started: Any, **network: Any) -> int:
    """Serve a run until it is to stop, as a server does that is asked to; returns its port."""
    ports: list[int] = []
    listening = Listening(
        "localhost:0", started=lambda port: (ports.append(port), started(port)), stop=stop, observers=[stop]
    )
    assert (
        train_remotely(config, make_network({"patience": 30, **network}), folder / "run", listening) is None
    )
    return ports[0]


def test_a_device_visits_the_parameter_server_that_a_restarted_server_names(tmp_path: Path) -> None:
    config = compose(words={**SMALL, "method": "sfl", "rounds": 4, "sfl": {"interval": 1}})
    devices = Devices(tmp_path / "state")
    with parameter_server(tmp_path / "first", 3) as first:
        port = served_until(
            Stopping(2),
            config,
            tmp_path,
            lambda port: devices.start(port, *NAMES),
            parameter_server=first,
        )
    with parameter_server(tmp_path / "second", 3) as second:
        result = trained_over_loopback(
            config,
            tmp_path,
            network={"parameter_server": second},
            devices=devices,
            started=lambda port: None,
            address=f"localhost:{port}",
        )
    assert result.final.weights_sha256 == gapsl.train(config).final.weights_sha256


def test_patience_begins_when_a_link_ends_and_not_when_it_was_made(tmp_path: Path) -> None:
    config = compose(words={**SMALL, "method": "psl", "rounds": 2})
    devices = Devices(tmp_path / "state", patience=Patience(first=0.05, longest=0.1, whole=8.0))
    stop = Stopping(1)

    def idle(port: int) -> None:
        devices.start(port, *NAMES[:2])  # the third is waited for
        threading.Timer(9.0, setattr, (stop, "asked", True)).start()

    port = served_until(stop, config, tmp_path, idle)
    assert not devices.ended
    trained_over_loopback(
        config,
        tmp_path,
        devices=devices,
        started=lambda port: devices.start(port, NAMES[2]),
        address=f"localhost:{port}",
    )
    assert devices.ended == dict.fromkeys(NAMES, "the run is finished")


@pytest.mark.slow
def test_a_method_that_only_the_server_knows_is_trained_with_devices_of_another_process(
    tmp_path: Path,
) -> None:
    class Mine(gapsl.METHODS["psl"]):  # type: ignore[misc]
        """A method that no other process has heard of."""

    if "mine-alone" not in gapsl.METHODS:
        gapsl.register_method("mine-alone", Mine)
    config = compose(words={**SMALL, "method": "mine-alone", "rounds": 2})
    served = Served(config, tmp_path, network={"patience": 200})
    place = ["--server", f"localhost:{served.port}", "--devices", "3", "--state", str(tmp_path / "state")]
    command = [sys.executable, "-m", "gapsl", "join", *place]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    expected = gapsl.train(compose(words={**SMALL, "method": "psl", "rounds": 2}))
    assert expected is not None
    assert served.result().final.weights_sha256 == expected.final.weights_sha256


def test_a_process_whose_device_fails_as_nobody_foresaw_does_not_end_well(tmp_path: Path) -> None:
    served = Served(compose(words={**SMALL, "method": "psl", "rounds": 2}), tmp_path)
    program = (
        "from gapsl.cli.networking import start_log; import gapsl.network.device.join as join\n"
        "def load_device_data(*given): raise RuntimeError('nobody foresaw this')\n"
        "join.load_device_data = load_device_data\n"
        "start_log('text'); join.join('localhost:%d', 'device-0', state=%r)"
    )
    command = [sys.executable, "-c", program % (served.port, str(tmp_path / "elsewhere"))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "device-0: nobody foresaw this" in ended.stderr
    served.devices.start(served.port, *NAMES)  # and whoever comes in its place takes part
    served.result()
