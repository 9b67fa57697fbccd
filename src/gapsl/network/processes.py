"""A fleet of processes on this machine, to try things out: servers, devices, and their logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.common.files import locked, write_json
from gapsl.common.reading import read_bytes, read_end, read_text

SERVER, PARAMETERS = "server", "parameter-server"
PROCESSES = "processes.json"  # who was started, in a fleet's folder
START_SECONDS = 60.0  # to load torch and listen
LOG_BYTES = 1 << 15  # of a log, that are looked at


@dataclass(frozen=True)
class Process:
    """One process: its number, and when it began, since numbers are given again."""

    name: str
    pid: int
    begun: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return began(self.pid) == self.begun


class Processes:
    """The processes of a fleet, as its folder has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file, self.logs = folder / PROCESSES, folder / "logs"
        self.started: list[Process] = []  # by this object

    def found(self) -> list[Process]:
        """Return the processes that were started, alive or not."""
        if not self._file.exists():
            return []
        try:
            return [Process(**entry) for entry in json.loads(read_bytes(self._file))]
        except (ValueError, TypeError, OSError) as error:
            raise InputError(f"{self._file} is damaged: {error}; delete it") from None

    def locked(self) -> AbstractContextManager[None]:
        """Keep two from starting the same processes."""
        busy = f"another gapsl fleet up is starting the fleet of {self.folder}; wait for it"
        return locked(self.folder, "--out", busy)

    def running(self) -> list[str]:
        """Return the names of those that run."""
        return [process.name for process in self.found() if process.alive]

    def start(self, name: str, arguments: Sequence[str]) -> Process:
        """Start a gapsl command in the background, with a log of its own."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "gapsl", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        process = Process(name, started.pid, began(started.pid) or "")
        self.started.append(process)
        others = [other for other in self.found() if other.name != name]
        write_json(self._file, [vars(one) for one in (*others, process)])
        return process

    def serve(self, name: str, arguments: Sequence[str], file: Path, *, there: bool) -> str:
        """Start a server if it does not run, and return where it listens, as it has written to a file.

        If others are `there`, they go on calling where it was, so it is started there again.
        """
        for process in self.found():
            if process.name == name and process.alive:
                return self.address(process, file)
        before = file.with_name(f"{file.name}.before")  # so that it is known after a start that failed
        if file.exists():
            file.replace(before)
        known = read_text(before).strip() if there and before.exists() else "localhost:0"
        return self.address(self.start(name, [*arguments, "--listen", known]), file)

    def address(self, process: Process, file: Path) -> str:
        """Wait until a server has written where it listens."""
        deadline = time.monotonic() + START_SECONDS
        while not file.exists():
            if not process.alive or time.monotonic() > deadline:
                said = [line.removeprefix("error: ") for line in self.last_lines(process.name).splitlines()]
                raise InputError("\n".join([f"the {process.name} did not start:", *said]))
            time.sleep(0.05)
        return read_text(file).strip()

    def last_lines(self, name: str, count: int = 5) -> str:
        """Return the end of a process's log."""
        path = self.logs / f"{name}.log"
        lines = read_end(path, LOG_BYTES) if path.exists() else []
        return "\n".join([line for line in lines if line][-count:])

    def log_size(self, name: str) -> int:
        """Return how many bytes a process's log has."""
        path = self.logs / f"{name}.log"
        return path.stat().st_size if path.exists() else 0

    def stop(self, which: Iterable[Process] | None = None) -> list[Process]:
        """Ask these, or all, to stop, the server first, so that it stores its last round; then make them."""
        alive = [process for process in (self.found() if which is None else which) if process.alive]
        ask([process for process in alive if process.name == SERVER], signal.SIGTERM, 15.0)
        ask([process for process in alive if process.name != SERVER], signal.SIGTERM, 5.0)
        ask(alive, signal.SIGKILL, 5.0)
        return alive


def ask(processes: Iterable[Process], what: signal.Signals, seconds: float) -> None:
    """Send processes a signal, and wait until they are gone, but not longer than that."""
    waiting = [process for process in processes if process.alive]
    for process in waiting:
        with suppress(ProcessLookupError):
            os.kill(process.pid, what)
    deadline = time.monotonic() + seconds
    while any(process.alive for process in waiting) and time.monotonic() < deadline:
        time.sleep(0.05)


def began(pid: int) -> str | None:
    """Return when a process began, None if there is none of this number or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
