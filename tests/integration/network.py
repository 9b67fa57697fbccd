"""A run over real links on this machine: the server in this thread, its devices in threads beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gapsl.errors import GapslError
from gapsl.net.agent import Agent, Patience
from gapsl.net.parameters import ParameterService, serve_parameters
from gapsl.net.settings import make_network
from gapsl.net.shared import SharedWorkplace
from gapsl.net.transfers import Transfers
from gapsl.serving import Listening, train_remotely
from gapsl.training.config import Config
from gapsl.training.observers import Observer

# Rounds of a few milliseconds, on real digits.
SMALL: dict[str, Any] = {
    "dataset": "digits", "model": "small", "width": 0.5, "devices": 3, "batch_size": 8, "rounds": 5,
    "evaluate_every": 5, "train_samples": 400, "test_samples": 60,
}  # fmt: skip
QUICKLY = Patience(first=0.05, longest=0.5, whole=60.0)


@dataclass
class Devices:
    """Devices in threads, and how each of them ended: with a word of goodbye, or an error."""

    state: Path
    credentials: Callable[[str], grpc.ChannelCredentials | None] = lambda name: None
    ended: dict[str, str | GapslError] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, port: int, *names: str) -> None:
        """Start devices, the last first."""
        for name in reversed(names):
            thread = threading.Thread(target=self._run, args=(name, port), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self, name: str, port: int) -> None:
        agent = Agent(
            f"localhost:{port}",
            name,
            state=self.state,
            workplace=lambda welcome: SharedWorkplace(welcome, None),
            credentials=self.credentials(name),
            patience=QUICKLY,
            tell=lambda text: self.said.append(f"{name}: {text}"),
        )
        try:
            self.ended[name] = agent.run()
        except GapslError as error:
            self.ended[name] = error

    def join(self, seconds: float = 20.0) -> None:
        """Wait for their end."""
        for thread in self._threads:
            thread.join(seconds)
            assert not thread.is_alive(), f"a device is still there: {self.said[-5:]}"


@contextmanager
def parameter_server(
    folder: Path, devices: int, credentials: grpc.ServerCredentials | None = None, **more: Any
) -> Iterator[str]:
    """A parameter server; gives its address."""
    names = tuple(f"device-{number}" for number in range(devices))
    service = ParameterService(names, Transfers(folder), 1 << 24, **more)
    server, port = serve_parameters(service, "localhost:0", credentials)
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0).wait()


def trained_over_loopback(
    config: Config,
    folder: Path,
    *,
    network: Mapping[str, Any] | None = None,
    devices: Devices | None = None,
    started: Callable[[int], None] | None = None,
    observers: Sequence[Observer] = (),
    said: list[str] | None = None,
    **listening: Any,
) -> dict[str, Any]:
    """Serve a run in this thread, with devices beside it unless `started` brings its own."""
    devices = devices or Devices(folder / "state")
    settings = make_network({"patience": 30, **(network or {})})
    names = settings.device_names(config.devices)
    words = said if said is not None else []
    result = train_remotely(
        config,
        settings,
        folder / "run",
        Listening(
            "localhost:0",
            started=started or (lambda port: devices.start(port, *names)),
            tell=words.append,
            observers=observers,
            **listening,
        ),
    )
    devices.join()
    assert result is not None
    return result
