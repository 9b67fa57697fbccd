"""A run over real links on this machine: the server in this thread, its devices in threads beside it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gapsl.common.errors import GapslError
from gapsl.network.device.agent import Agent, Patience
from gapsl.network.device.device_data import DeviceData, load_device_data
from gapsl.network.parameter_server.service import ParameterService, serve_parameters
from gapsl.network.parameter_server.store import Transfers
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.settings import make_network
from gapsl.run.config import Config
from gapsl.run.observers import Observer
from gapsl.run.serve import Listening, train_remotely

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
    load_data: Callable[[str, wire.Welcome], DeviceData] = lambda name, welcome: load_device_data(welcome)
    ended: dict[str, str | GapslError] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    patience: Patience = QUICKLY
    fresh: bool = False
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
            load_data=lambda welcome: self.load_data(name, welcome),
            credentials=self.credentials(name),
            patience=self.patience,
            fresh=self.fresh,
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
    tell = more.get("tell", lambda text: None)
    service = ParameterService(names, Transfers(folder, tell), 1 << 24, **more)
    server = serve_parameters(service, "localhost:0", credentials)
    try:
        yield f"localhost:{server.port}"
    finally:
        server.stop()


def trained_over_loopback(
    config: Config,
    folder: Path,
    *,
    network: Mapping[str, Any] | None = None,
    devices: Devices | None = None,
    started: Callable[[int], None] | None = None,
    observers: Sequence[Observer] = (),
    said: list[str] | None = None,
    address: str = "localhost:0",
    **listening: Any,
) -> dict[str, Any]:
    """Serve a run in this thread, with devices beside it unless `started` brings its own."""
    devices = devices or Devices(folder / "state")
    settings = make_network({"patience": 30, "closing": "all", **(network or {})})
    names = settings.device_names(config.devices)
    words = said if said is not None else []
    result = train_remotely(
        config,
        settings,
        folder / "run",
        Listening(
            address,
            started=started or (lambda port: devices.start(port, *names)),
            tell=words.append,
            observers=observers,
            **listening,
        ),
    )
    devices.join()
    assert result is not None
    return result


class Served:
    """A run that is served in a thread, for tests that are its devices themselves."""

    def __init__(self, config: Config, folder: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.devices = options.pop("devices", None) or Devices(folder / "state")
        self._port: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ended: list[dict[str, Any] | BaseException] = []
        self._thread = threading.Thread(target=self._serve, args=(config, folder, options), daemon=True)
        self._thread.start()
        self.port = self._port.get(timeout=60)

    def _serve(self, config: Config, folder: Path, options: dict[str, Any]) -> None:
        try:
            self._ended.append(
                trained_over_loopback(
                    config, folder, devices=self.devices, started=self._port.put, said=self.said, **options
                )
            )
        except BaseException as error:
            self._ended.append(error)

    @property
    def running(self) -> bool:
        """Whether it is still served."""
        return self._thread.is_alive()

    def result(self) -> dict[str, Any]:
        """Wait for the end of the run, which must be a good one."""
        self._thread.join(60)
        assert self._ended, f"the run has not ended: {self.said[-5:]}"
        if isinstance(self._ended[0], BaseException):
            raise self._ended[0]
        return self._ended[0]


@contextmanager
def channel_to(port: int, credentials: grpc.ChannelCredentials | None = None) -> Iterator[grpc.Channel]:
    """A link to a server, as anybody may open one."""
    address = f"localhost:{port}"
    opened = (
        grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    )
    with opened as channel:
        yield channel


def answers(
    channel: grpc.Channel, messages: Iterable[Any], method: str = "gapsl.v1.Training/Join"
) -> list[wire.ToDevice | wire.ToParameterClient]:
    """Say these to a server, then nothing more; return what it says, parts of tensors left out."""
    kind = wire.ToDevice if method.endswith("Join") else wire.ToParameterClient
    call = channel.stream_stream(f"/{method}")(
        iter([one if isinstance(one, bytes) else one.SerializeToString() for one in messages]), timeout=30
    )
    found = [kind.FromString(data) for data in call]
    return [one for one in found if one.WhichOneof("message") != "part"]


def hello(name: str, protocol: int = 1) -> wire.FromDevice:
    """Return the first word of a device."""
    return wire.FromDevice(hello=wire.Hello(protocol=protocol, version="0.1", name=name))
