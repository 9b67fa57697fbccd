"""A whole fleet of real processes: a server, its devices, and the parameter server where one is needed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import faults
from processes import Command, Ended, Launcher, result_of, rounds_done, wait_until, whole_records

from gapsl.run.records import RunResult

SERVER, PARAMETERS = "server", "parameters"

# Rounds of a few milliseconds, on real digits; everything that has a state of its own is in it.
WORDS: dict[str, Any] = {
    "dataset": "digits", "model": "small", "width": 0.5, "norm": "batch", "devices": 3, "batch_size": 8,
    "rounds": 30, "evaluate_every": 10, "checkpoint_every": 5, "train_samples": 400, "test_samples": 60,
    "dropout": 0.2,
}  # fmt: skip


# Below those that Linux gives to connections and to whoever asks for any port, and each process of the tests
# begins elsewhere: what is free stays so until the server that it is for listens there.
PORTS = itertools.cycle(range(10_000, 32_000))
for _ in range(os.getpid() * 7_919 % 20_000):
    next(PORTS)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    for port in PORTS:
        with socket.socket() as found, suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(("localhost", port))
            return port
    raise AssertionError("cycle never ends")


class Fleet:
    """The processes of one run, by name; each may be killed and started again."""

    def __init__(
        self,
        cli: Launcher,
        folder: Path,
        words: Mapping[str, Any],
        *,
        parameters: bool = False,
        joining: Sequence[str] = (),
        network: Mapping[str, Any] | None = None,
        log: str = "text",
        certs: Path | None = None,
        **options: Any,
    ) -> None:
        self.cli, self.folder, self.log, self.certs = cli, folder, log, certs
        self.words = {**WORDS, **words}
        self.port, self.run, self.state = free_port(), folder / "run", folder / "state"
        self.devices = [f"device-{number}" for number in range(self.words["devices"])]
        # Names separated by commas are devices of one process.
        self.joining = joining or self.devices
        self.names = [SERVER, *([PARAMETERS] if parameters else []), *self.joining]
        self.options = {"patience": 60, **options}
        if parameters:
            self.parts, self.parameter_port = folder / "parameters", free_port()
            self.options["parameter-server"] = f"localhost:{self.parameter_port}"
        self.processes: dict[str, Command] = {}
        self.environments: dict[str, dict[str, str]] = {}  # of processes for which something is arranged
        self.kills = 0
        (folder / "run.yaml").write_text(json.dumps(self.words), encoding="utf-8")
        served = {**self.words, "network": dict(network or {})}
        (folder / "served.yaml").write_text(json.dumps(served), encoding="utf-8")

    def start(self, *names: str) -> Command:
        """Start processes; returns the last."""
        for name in names or self.names:
            environment = self.environments.get(name, {})
            command = [*self._command(name), "--log", self.log]
            command += [] if self.certs is None else ["--certs", str(self.certs)]
            self.processes[name] = self.cli.start(*command, cwd=self.folder, env=environment)
        return self.processes[(names or self.names)[-1]]

    def _command(self, name: str) -> list[str]:
        if name == SERVER:
            options = [word for key, value in self.options.items() for word in (f"--{key}", str(value))]
            return [
                "serve",
                "--config",
                "served.yaml",
                "--out",
                str(self.run),
                "--listen",
                f"localhost:{self.port}",
                *options,
            ]
        if name == PARAMETERS:
            command = ["parameter-server", "--devices", str(len(self.devices)), "--state", str(self.parts)]
            return [*command, "--listen", f"localhost:{self.parameter_port}"]
        names = [word for one in name.split(",") for word in ("--name", one)]
        return ["join", "--server", f"localhost:{self.port}", *names, "--state", str(self.state)]

    @property
    def server(self) -> Command:
        """The server that runs now, or ran last."""
        return self.processes[SERVER]

    def until(self, happened: Callable[[], Any], what: str) -> None:
        """Wait for something that happens before the run is over."""
        assert self.server.until(happened, what), (
            f"the server ended before {what}: {self.server.stderr[-800:]}"
        )

    def until_round(self, round: int) -> None:
        """Wait until a round is done."""
        self.until(lambda: rounds_done(self.run) >= round, f"round {round}")

    def until_record(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait for a round, from now on, whose record is as wanted; returns that record."""
        done = rounds_done(self.run)
        found: list[dict[str, Any]] = []

        def happened() -> bool:
            found[:] = [record for record in whole_records(self.run)[done:] if wanted(record)]
            return bool(found)

        self.until(happened, what)
        return found[0]

    def kill(self, name: str) -> None:
        """Kill a process with -9."""
        process = self.processes[name]
        process.kill()
        assert process.code == -signal.SIGKILL, f"{name} ended by itself: {process.stderr[-800:]}"
        self.kills += 1

    def kill_and_start(self, name: str) -> None:
        """Kill a process with -9, and start it again as it was started."""
        self.kill(name)
        self.start(name)

    def arrange(self, name: str, fault: str) -> Path:
        """Let a fault happen once to a process that is not started yet; returns the file that says it has."""
        marker = self.folder / f"{name}-{fault}"
        self.environments[name] = faults.arranged(fault, marker)
        return marker

    def pause(self, name: str) -> None:
        """Stop a process as a machine that hangs; its links stay open."""
        self.processes[name].signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let a process go on that was paused."""
        self.processes[name].signal(signal.SIGCONT)

    def finish(self) -> Ended:
        """Wait for the end of the run; devices must end well, too."""
        ended = self.server.wait()
        assert ended.code == 0, f"after {self.kills} kills: {ended.stderr[-2000:]}"
        for name in self.joining:
            process = self.processes[name]
            wait_until(lambda p=process: not p.running, f"the end of {name}", deadline=30)  # type: ignore[misc]
            assert process.code == 0, process.stderr[-2000:]
        return ended

    def close(self) -> None:
        """Kill whoever is left."""
        for process in self.processes.values():
            if process.running:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def undisturbed(self) -> str:
        """Return the weights of the same run in one process."""
        return str(self.undisturbed_result().final.weights_sha256)

    def undisturbed_result(self) -> RunResult:
        """Return the result of the same run in one process."""
        folder = self.folder / "one-process"
        ended = self.cli.run("train", "--config", "run.yaml", "--out", folder, "-q", cwd=self.folder)
        assert ended.code == 0, ended.stderr
        return result_of(folder)

    def replayed(self) -> str:
        """Repeat the run in one process with who was missing when; returns what it says."""
        ended = self.cli.run("replay", self.run, "-q")
        assert ended.code == 0, (
            ended.stderr + (self.run / "records.jsonl").read_text(encoding="utf-8")[-3000:]
        )
        return ended.stdout
