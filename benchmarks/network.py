"""What the network costs, as ratios to floors measured in the same run.

Run it alone:

    python benchmarks/network.py                 # the tables of README.md in this folder
    python benchmarks/network.py --skip-round    # throughput alone

Throughput: tensors of 8 MiB go to a device and back through the whole of what a run uses (codec, parts,
session, gRPC, assembling), the device in a process of its own. The floor is a raw TCP socket that sends the
same bytes back and forth between two processes.

Round: one round of PSL with a process for each device, against the same round in one process. All processes
share one core, so that both have the same number of busy cores and what is compared is work, not waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import torch
from torch import Tensor

import gapsl
from gapsl.device.config import DeviceConfig
from gapsl.device.exchange import DeviceInfo, Exchange, Reply, Upload
from gapsl.fleets.remote import RemoteFleet
from gapsl.network.device.agent import Agent
from gapsl.network.device.device_data import load_device_data
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PROTOCOL, TRAINING
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.settings import RoundPolicy, make_network
from gapsl.network.server.dispatcher import Dispatcher
from gapsl.network.server.fleet_state import FleetState
from gapsl.network.server.service import Roster, Service
from gapsl.network.server.session import Inbox
from gapsl.network.serving import Serving
from gapsl.network.tls.authority import Authority
from gapsl.network.tls.credentials import device_credentials, server_credentials
from gapsl.run.api import compose
from gapsl.run.environment import describe_environment
from gapsl.run.observers import Observer
from gapsl.run.serve import Listening, train_remotely

SIZE = 8 << 20
BLOCKS, REPEAT, WARM = 5, 10, 3
OTHERS: list[subprocess.Popen[bytes]] = []  # processes that this one has started
GOALS = {"plain": 0.4, "mutual TLS": 0.3, "round": 1.25, "bytes": 1.02}


class Echo:
    """A device that does not compute: it sends a tensor, and takes one."""

    id, where = 0, torch.device("cpu")

    def __init__(self) -> None:
        self.part = SimpleNamespace(parameters=[torch.zeros(1)])
        self._tensor, self._label = torch.randn(1, SIZE // 4), torch.zeros(1, dtype=torch.int64)

    def forward(self, round: int, turn: int = 0, *, learn: bool = True) -> Upload:
        """Send the tensor."""
        return Upload(0, round, turn, self._tensor, self._label)

    def backward(self, round: int, reply: Reply) -> None:
        """Take the gradient."""


class EchoPlace:
    """Where such a device works."""

    info, test_samples, config = DeviceInfo(1, (1,), 1), 0, DeviceConfig(batch_size=1)

    def __init__(self, welcome: wire.Welcome) -> None:
        pass

    def device(self, total_rounds: int) -> Any:
        """Return the device."""
        return Echo()

    def inputs(self, split: Any, batch: int) -> tuple[Tensor, Tensor | None]:
        """There is nothing to evaluate."""
        raise NotImplementedError


# --- the other processes


def be_echo(port: int, certs: str) -> None:
    """Be the device of the throughput measurement."""
    credentials = device_credentials(Path(certs), "echo") if certs else None
    with tempfile.TemporaryDirectory() as state:
        address = f"localhost:{port}"
        place: Any = EchoPlace
        Agent(address, "echo", state=Path(state), load_data=place, credentials=credentials).run()


def be_tcp(port: int) -> None:
    """Send back what comes from a socket."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        memory = memoryview(bytearray(SIZE))
        while receive(link, memory):
            link.sendall(memory)


def be_device(port: int, name: str, state: str) -> None:
    """Be a device of the measured round."""
    Agent(f"localhost:{port}", name, state=Path(state), load_data=load_device_data).run()


def receive(link: socket.socket, memory: memoryview) -> bool:
    """Fill memory from a socket; False at its end."""
    filled = 0
    while filled < len(memory):
        count = link.recv_into(memory[filled:])
        if not count:
            return False
        filled += count
    return True


def another(*arguments: object) -> None:
    """Run this file in another process with these arguments, until this one is done."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--be", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    OTHERS.append(process)


# --- throughput


def tcp() -> Callable[[], None]:
    """Return the floor: 8 MiB out and back over a raw socket."""
    listening = socket.create_server(("127.0.0.1", 0))
    another("tcp", listening.getsockname()[1])
    link, _ = listening.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    memory = memoryview(bytearray(SIZE))

    def once() -> None:
        link.sendall(memory)
        receive(link, memory)

    return once


def stream(certs: Path | None) -> Callable[[], None]:
    """Return the same over a run's own stream: a gradient out, activations back."""
    inbox: Inbox = Inbox()
    roster = Roster(("echo",), inbox)
    agreed = TensorContract(wire.FLOAT32, (SIZE // 4,), 1, 1, 1)
    state = FleetState(None, ("echo",))
    dispatcher = Dispatcher(roster, state, agreed, policy=RoundPolicy(), total_rounds=1, patience=60)
    fleet = RemoteFleet(dispatcher, merges=False)

    def welcome(device: int) -> wire.Welcome:
        return wire.Welcome(
            protocol=PROTOCOL, run="benchmark", config="{}", activations=wire.PLAIN, gradients=wire.PLAIN
        )

    credentials: grpc.ServerCredentials | None = None if certs is None else server_credentials(certs)
    service = Service(roster, welcome, lambda context: None)
    serving = Serving(TRAINING, "Join", service.join, "localhost:0", 1, credentials)
    another("echo", serving.port, certs or "")
    dispatcher.gather()
    fleet.load(Path(), 0)
    gradient = Reply(torch.randn(1, SIZE // 4))
    rounds = iter(range(1, 1_000_000))

    def once() -> None:
        round = next(rounds)
        for _ in fleet.collect(round, Exchange((0,))):
            pass
        fleet.deliver(round, {0: gradient})

    return once


def throughput() -> list[dict[str, Any]]:
    """Return the rows of the table of throughput."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder) / "certs")
        authority.issue("server", ["localhost"])
        authority.issue("echo")
        timed = {"raw TCP": tcp(), "plain": stream(None), "mutual TLS": stream(Path(folder) / "certs")}
        seconds: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(BLOCKS):
            for name, once in timed.items():
                for repetition in range(REPEAT + WARM):  # the first ones of a block warm up
                    begun = time.perf_counter()
                    once()
                    if repetition >= WARM:
                        seconds[name].append(time.perf_counter() - begun)
    rates = {name: 2 * SIZE / 1e6 / sorted(found)[len(found) // 2] for name, found in seconds.items()}
    return [
        {"what": name, "MB/s": round(rate), "ratio": rate / rates["raw TCP"], "goal": GOALS.get(name)}
        for name, rate in rates.items()
    ]


# --- a round


@dataclass
class Clock(Observer):
    """When each round ended."""

    ends: list[float]

    def round(self, record: Any) -> None:
        """Look at the clock."""
        self.ends.append(time.perf_counter())

    def fastest(self) -> float:
        """Return the seconds of the fastest round but the first."""
        return min(later - earlier for earlier, later in zip(self.ends[1:], self.ends[2:], strict=False))


def round_cost(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of the table of a round's cost."""
    config = compose(
        words={
            "method": "psl",
            "dataset": options.dataset,
            "data_dir": options.data_dir,
            "model": "vgg16",
            "width": 0.25,
            "devices": 10,
            "batch_size": 128,
            "rounds": options.rounds,
            "evaluate_every": options.rounds,
            "train_samples": 10_000,
            "test_samples": 100,
            "checkpoint_every": 1000,
        }
    )
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # children inherit it
    local = Clock([])
    gapsl.train(config, observers=[local])
    names = [f"device-{number}" for number in range(config.devices)]
    # Rounds without an evaluation or a checkpoint; the fastest is not one that has to wait for the counter.
    remote, carried = Clock([]), Carried(2, options.rounds - 1)
    with tempfile.TemporaryDirectory() as folder:

        def started(port: int) -> None:
            for name in names:
                another("device", port, name, folder)

        listening = Listening("localhost:0", started=started, observers=[remote, carried])
        network = make_network({"names": names})
        train_remotely(config, network, Path(folder) / "run", listening)
    seconds = {"in one process": local.fastest(), "10 device processes": remote.fastest()}
    ratio = seconds["10 device processes"] / seconds["in one process"]
    rows = [{"what": name, "seconds": round(found, 3)} for name, found in seconds.items()]
    rows.append({"what": "ratio", "ratio": ratio, "goal": GOALS["round"]})
    rows.append(
        {"what": "bytes on the wire to tensors' bytes", "ratio": carried.ratio(), "goal": GOALS["bytes"]}
    )
    return rows


class Carried(Observer):
    """What loopback carried in the middle rounds, against the tensors' bytes; nothing else may use it."""

    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last
        self._read: list[int] = []
        self._tensors = 0

    def round(self, record: Any) -> None:
        """Count the tensors, and read the counter at both ends."""
        if self._first < record.round <= self._last:
            self._tensors += sum(record.bytes_sent.values()) + sum(record.bytes_received.values())
        if record.round in (self._first, self._last):
            self._read.append(still())

    def ratio(self) -> float:
        """Return what was carried, of the tensors' bytes."""
        return (self._read[1] - self._read[0]) / self._tensors


def still() -> int:
    """Return the bytes that loopback has carried when the last replies of a round have arrived."""
    before = -1
    while (now := loopback()) != before:
        before = now
        time.sleep(0.2)
    return now


def loopback() -> int:
    """Return the bytes that the loopback device has carried."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    raise RuntimeError("there is no loopback device")


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a table."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    for row in rows:
        cells = [row.get(name) for name in columns]
        shown = ["" if c is None else f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--be", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--skip-round", action="store_true")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.be:
        what, port, *rest = options.be
        {"echo": be_echo, "tcp": be_tcp, "device": be_device}[what](int(port), *rest)  # type: ignore[operator]
        return
    print(json.dumps(describe_environment()), file=sys.stderr)
    try:
        print(table(throughput()))
        if not options.skip_round:
            print()
            print(table(round_cost(options)))
    finally:
        for process in OTHERS:  # before threads are waited for that serve them
            process.kill()


if __name__ == "__main__":
    main()
