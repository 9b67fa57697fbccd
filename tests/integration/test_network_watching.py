"""What a server shows those who watch it: figures, health, a fleet's status."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gapsl.api import compose
from gapsl.training.observers import Observer
from tests.integration.network import SMALL, Devices, trained_over_loopback


class Watcher(Observer):
    """Looks at a server from outside after each of its rounds."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.port = 0
        self.pages: list[str] = []
        self.health: list[int] = []

    def round(self, record: Mapping[str, Any]) -> None:
        (metrics,) = [line for line in self.said if line.startswith("metrics on port")]
        with urllib.request.urlopen(f"http://localhost:{metrics.split()[-1]}/metrics", timeout=10) as page:
            self.pages.append(page.read().decode())
        with grpc.insecure_channel(f"localhost:{self.port}") as channel:
            request = health_pb2.HealthCheckRequest(service="gapsl.v1.Training")
            self.health.append(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


def figure(page: str, name: str) -> float:
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found)


def test_a_server_serves_its_figures_and_its_health(tmp_path: Path) -> None:
    watcher, devices = Watcher(), Devices(tmp_path / "state")

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
    assert watcher.health == [health_pb2.HealthCheckResponse.SERVING] * 3
    # Observers are told one after another, this one before the figures: a page shows the rounds before.
    last = watcher.pages[-1]
    assert figure(last, "gapsl_rounds_total") == 2
    assert figure(last, "gapsl_rounds_planned") == 3
    assert figure(last, "gapsl_accuracy") == result["history"][0]["device_mean"]
    assert figure(last, 'gapsl_departures{device="device-1"}') == 0
    sent = figure(last, 'gapsl_bytes_total{device="device-2",direction="sent"}')
    assert sent == result["final"]["bytes_sent"][2] * 2 / 3
