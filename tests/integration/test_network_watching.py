"""What a server shows those who watch it: figures, health, a fleet's status."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from fleet import Fleet, free_port
from grpc_health.v1 import health_pb2, health_pb2_grpc
from network import SMALL, Devices, Served, trained_over_loopback
from processes import Launcher, records_of, wait_until

from gapsl.common.errors import InputError, Unavailable
from gapsl.run.api import compose
from gapsl.run.observers import Observer
from gapsl.run.status import status


class Watcher(Observer):
    """Looks at a server from outside after each of its rounds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.port = 0
        self.pages: list[str] = []
        self.health: list[int] = []

    def round(self, record: Mapping[str, Any]) -> None:
        self.pages.append(figures(self.said))
        port = next(line for line in self.said if line.startswith("metrics on port")).split()[-1]
        self.standing = [status(self.folder), status(f"localhost:{port}")]
        with grpc.insecure_channel(f"localhost:{self.port}") as channel:
            request = health_pb2.HealthCheckRequest(service="gapsl.v1.Training")
            self.health.append(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


def figures(said: list[str]) -> str:
    (metrics,) = [line for line in said if line.startswith("metrics on port")]
    with urllib.request.urlopen(f"http://localhost:{metrics.split()[-1]}/metrics", timeout=10) as page:
        return page.read().decode()


def figure(page: str, name: str) -> float:
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found)


def test_a_server_serves_its_figures_and_its_health(tmp_path: Path) -> None:
    watcher, devices = Watcher(tmp_path / "run"), Devices(tmp_path / "state")

    def started(port: int) -> None:
        watcher.port = port
        devices.start(port, "device-0", "device-1", "device-2")

    config = compose(words={**SMALL, "method": "gapsl", "rounds": 3, "evaluate_every": 2})
    result = trained_over_loopback(
        config,
        tmp_path,
        devices=devices,
        started=started,
        observers=[watcher],
        said=watcher.said,
        metrics="localhost:0",
    )
    names = ["device-0", "device-1", "device-2"]
    for standing, seen in zip(watcher.standing, (3, 2), strict=True):  # the folder is written first
        assert (standing.state, standing.round, standing.total) == ("running", seen, 3)
        assert standing.connected == dict.fromkeys(names, True)
        assert standing.accuracy in [one.device_mean for one in result.history]
        assert standing.lines()[-1] == "connected: device-0, device-1, device-2"
    ended = status(tmp_path / "run")
    assert (ended.state, ended.round, ended.connected) == ("finished", 3, None)
    with pytest.raises(Unavailable, match=r"no metrics at localhost:\d+ \(Connection refused\); give"):
        status(f"localhost:{free_port()}")
    with pytest.raises(InputError, match="'localhost:99999' is no address"):
        status("localhost:99999")
    assert watcher.health == [health_pb2.HealthCheckResponse.SERVING] * 3
    # Observers are told one after another, this one before the figures: a page shows the rounds before.
    last = watcher.pages[-1]
    assert figure(last, "gapsl_rounds_total") == 2
    assert figure(last, "gapsl_rounds_planned") == 3
    assert figure(last, "gapsl_accuracy") == result.history[0].device_mean
    assert figure(last, 'gapsl_departures{device="device-1"}') == 0
    assert figure(last, 'gapsl_connected{device="device-1"}') == 1
    for direction in ("sent", "received"):
        found = figure(last, f'gapsl_bytes_total{{device="device-2",direction="{direction}"}}')
        assert found == getattr(result.final, f"bytes_{direction}")[2] * 2 / 3
    records = records_of(tmp_path / "run")[:2]
    assert figure(last, "gapsl_loss") == records[1].loss
    assert figure(last, "gapsl_angle_mean_radians") == records[1].angle_mean
    for phase in ("collect", "server", "deliver"):
        spent = figure(last, f'gapsl_seconds_total{{phase="{phase}"}}')
        assert spent == pytest.approx(sum(record.seconds[phase] for record in records))
    kept = [device for record in records for device in record.selection.kept]
    for device in set(kept):
        name = f'gapsl_kept_total{{device="device-{device}"}}'
        assert figure(last, name) == kept.count(device)


def test_figures_count_links_that_ended_and_rounds_that_were_closed_without_a_device(
    cli: Launcher, tmp_path: Path
) -> None:
    port = free_port()
    # More rounds than there is time for: the figures are read while the run goes on.
    words = {"method": "psl", "rounds": 100_000, "evaluate_every": 100_000, "checkpoint_every": 100_000}
    with Fleet(cli, tmp_path, words, closing="fraction:0.6", metrics=f"localhost:{port}") as fleet:
        fleet.start()
        fleet.until_round(3)
        fleet.kill("device-1")

        def count(name: str, device: int = 1) -> float:
            with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10) as found:
                page = str(found.read().decode())
            return figure(page, f'gapsl_{name}{{device="device-{device}"}}')

        fleet.until(lambda: count("departures") == 1, "device-1's link has ended")
        # It may have been too slow for a round while it was there: what counts is what is added now.
        before = count("absent_total")
        fleet.until(lambda: count("absent_total") > before, "a round without it")
        assert count("departures") == 1
        assert count("connected") == 0
        assert count("departures", device=0) == 0


def test_without_figures_the_folder_says_who_is_missing(tmp_path: Path) -> None:
    served = Served(compose(words={**SMALL, "method": "psl", "rounds": 1}), tmp_path)
    served.devices.start(served.port, "device-0", "device-2")
    said = ["connected: device-0, device-2", "not connected: device-1"]
    wait_until(lambda: status(tmp_path / "run").lines()[-2:] == said, "device-1 missing")
    served.devices.start(served.port, "device-1")
    served.result()


def test_while_devices_are_waited_for_the_figures_say_who_is_missing(tmp_path: Path) -> None:
    config = compose(words={**SMALL, "method": "psl", "rounds": 1})
    served = Served(config, tmp_path, metrics="localhost:0")
    served.devices.start(served.port, "device-0", "device-2")

    def here() -> list[float]:
        page = figures(served.said)
        return [figure(page, f'gapsl_connected{{device="device-{number}"}}') for number in range(3)]

    wait_until(lambda: any(line.startswith("metrics on port") for line in served.said), "metrics")
    wait_until(lambda: here() == [1.0, 0.0, 1.0], "device-1 missing")
    served.devices.start(served.port, "device-1")
    served.result()
