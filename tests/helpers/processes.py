"""Real processes of gapsl for the tests: started, watched, signalled and waited for."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gapsl.run.records import RoundRecord, RunResult

DEADLINE = 90.0  # seconds that nothing in these tests takes unless it hangs
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": ""}

# A run of a second: 4 devices, 40 rounds on real digits.
TINY = [
    "--dataset", "digits", "--model", "mlp", "--devices", "4", "--rounds", "40", "--batch-size", "8",
    "--evaluate-every", "10", "--checkpoint-every", "5", "--set", "width=0.5", "--set", "test_samples=60",
]  # fmt: skip


def wait_until(happened: Callable[[], Any], what: str, *, deadline: float = DEADLINE) -> Any:
    """Return what `happened` says as soon as it says something."""
    end, pause = time.monotonic() + deadline, 0.002
    while not (found := happened()):
        assert time.monotonic() < end, f"{what} did not happen within {deadline:.0f} s"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.03)  # looking takes time from what is waited for
    return found


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str


class Command:
    """A `gapsl` process, started by a launcher."""

    def __init__(self, launcher: Launcher, pid: int, stdout: Path, stderr: Path) -> None:
        self._launcher, self.pid, self._stdout, self._stderr = launcher, pid, stdout, stderr
        self.code: int | None = None

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        if self.code is None:
            self.code = self._launcher.ask({"ended": self.pid})
        return self.code is None

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._stdout.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        """What it has complained about so far."""
        return self._stderr.read_text(encoding="utf-8")

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to it, or to its process group as a terminal does."""
        assert self.running
        os.kill(-self.pid if group else self.pid, number)

    def until(self, happened: Callable[[], Any], what: str) -> bool:
        """Wait for something that happens while it runs; false if it ends first."""
        seen: list[Any] = []

        def over() -> bool:
            running = self.running  # first: what happens between two looks is seen by the second
            seen.extend([True] if happened() else [])
            return bool(seen) or not running

        wait_until(over, what)
        return bool(seen)

    def until_stalled(self) -> None:
        """Wait until it has stopped itself; see `stall` in faults.py."""
        assert self.until(lambda: is_stopped(self.pid), "the stall"), f"it ended first: {self.stderr[-800:]}"

    def children(self) -> list[int]:
        """Return the processes it has started."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii")
        return [int(pid) for pid in listed.split()]

    def wait(self) -> Ended:
        """Wait for its end."""
        if self.code is None:
            with self._end() as end:  # not by looking again and again
                assert select.select([end], [], [], DEADLINE)[0], f"process {self.pid} has not ended"
        wait_until(lambda: not self.running, f"the end of process {self.pid}")
        assert self.code is not None
        return Ended(self.code, self.stdout, self.stderr)

    def _end(self) -> IO[bytes]:
        """Return what can be read from as soon as it has ended."""
        return os.fdopen(os.pidfd_open(self.pid), "rb", buffering=0)

    def kill(self) -> None:
        """Kill it as `kill -9` does, and wait until it is gone."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()


def status(pid: int) -> dict[str, str]:
    """Return what Linux says of a process; nothing if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def is_stopped(pid: int) -> bool:
    """Say whether a process is stopped, by SIGSTOP for example."""
    return status(pid).get("State", "").startswith("T")


def hold(pid: int) -> None:
    """Stop a process, and wait until it is."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid), "the stop")


def release(pid: int, after: int) -> None:
    """Let a process that is stopped go on as soon as a signal waits for it."""
    wait_until(lambda: int(status(pid)["ShdPnd"], 16) & 1 << (after - 1), "the signal")
    os.kill(pid, signal.SIGCONT)


class Launcher:
    """Starts commands; see launcher.py."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("launcher.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )

    def ask(self, order: Mapping[str, Any]) -> Any:
        """Have the launcher do something and return its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] = {},
        script: Path | str = "",
    ) -> Command:
        """Start `gapsl` with these arguments, or a program of Python."""
        self._count += 1
        stdout, stderr = (self._folder / f"{self._count:04d}.{name}" for name in ("out", "err"))
        for path in (stdout, stderr):
            path.touch()
        order = {
            "args": [str(arg) for arg in args],
            "cwd": str(cwd or self._folder),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "env": dict(env),
            "script": str(script),
        }
        return Command(self, self.ask(order), stdout, stderr)

    def run(self, *args: str | Path, **options: Any) -> Ended:
        """Run `gapsl` with these arguments to its end; `options` are those of `start`."""
        return self.start(*args, **options).wait()

    def close(self) -> None:
        """End the launcher."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE)


def fresh(*args: str | Path, cwd: Path | None = None, env: Mapping[str, str] = {}) -> Ended:
    """Run `python -m gapsl` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-m", "gapsl", *map(str, args)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **ENVIRONMENT, **env},
        cwd=cwd,
        timeout=DEADLINE,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def result_of(folder: Path) -> RunResult:
    """Return a run's result, which must be strict JSON."""
    return RunResult.from_dict(strict_json((folder / "result.json").read_text(encoding="utf-8")))


def weights_of(folder: Path) -> str:
    """Return the SHA-256 of a finished run's weights."""
    return result_of(folder).final.weights_sha256


def records_of(folder: Path) -> list[RoundRecord]:
    """Return a run's records, each a line of strict JSON."""
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return [RoundRecord.from_dict(strict_json(line)) for line in lines]


def rounds_done(folder: Path) -> int:
    """Return how many rounds a run has recorded, running or not."""
    return len(whole_lines(folder))


def whole_records(folder: Path) -> list[RoundRecord]:
    """Return the records of a run that may be writing the next one."""
    return [RoundRecord.from_dict(strict_json(line.decode())) for line in whole_lines(folder)]


def whole_lines(folder: Path) -> list[bytes]:
    """Return the lines of a run's records that are written to their end."""
    try:
        return (folder / "records.jsonl").read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def strict_json(text: str) -> Any:
    """Parse JSON, refusing NaN and infinities, which are not JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


CLOCKED = ("seconds", "device_seconds")


def timeless(value: Any) -> Any:
    """Return a value as JSON has it, without what a clock said."""
    if isinstance(value, RoundRecord | RunResult):
        return timeless(value.to_dict())
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in CLOCKED}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    return value


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file under a folder, to see that nothing has changed; the lock holds nothing."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


def workers_of(folder: Path) -> list[int]:
    """Return the processes that train a comparison's runs, from the list of all processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if b"gapsl.analysis.worker" in words and any(str(folder).encode() in word for word in words):
            found.append(int(entry.name))
    return found
