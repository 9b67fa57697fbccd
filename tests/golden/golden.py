"""The table of reference runs, and how they are trained: in processes of their own, through gapsl's commands.

Nothing of gapsl is imported here, and torch is not: both come with the processes that are started, which get
an environment in which torch, oneDNN and MKL compute the same on processors with AVX2, with AVX-512, of Intel
and of AMD, as far as they can be made to. Where they do not, the arithmetic has another fingerprint.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import multiprocessing.context
import os
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLE = HERE / "runs.json"
FIXTURES = HERE.parent / "fixtures"
DEADLINE = 240.0  # seconds that nothing here takes unless it hangs

ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "COLUMNS": "120",
    "NO_COLOR": "1",
}


# --- the table


@cache
def table() -> dict[str, Any]:
    """Return the table: who recorded it, the runs, and what the fixtures come to."""
    return dict(json.loads(TABLE.read_text(encoding="utf-8")))


def runs() -> dict[str, dict[str, Any]]:
    """Return the entries of the table by name."""
    return dict(table()["runs"])


def fingerprint_of(entry: Mapping[str, Any], found: Mapping[str, str]) -> str:
    """Return the one of a machine's fingerprints that decides which hash of an entry is right there."""
    return found["dropout" if entry["settings"].get("dropout") else "arithmetic"]


def recorded(entries: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of those entries that were recorded on a machine that computes as this one."""
    return {
        name: entry["weights_sha256"][of]
        for name, entry in entries.items()
        if (of := fingerprint_of(entry, found)) in entry["weights_sha256"]
    }


def unknown(found: Mapping[str, str]) -> str:
    """Say why there is nothing to compare with."""
    return (
        f"this machine computes other bits (fingerprint {found['arithmetic']}) than those that recorded "
        f"{TABLE.name} ({', '.join(table()['machines'])}); with a gapsl that is known to be right, add its "
        "hashes: python tests/golden/record.py --add"
    )


# --- processes


def trained(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Train entries in one process; returns their settings and hashes, and the machine's fingerprints."""
    asked = {name: {k: v for k, v in e.items() if k in ("settings", "given")} for name, e in entries.items()}
    with started(_worker, json.dumps(asked)) as process:
        code, said = process.end()
    lines = said.splitlines()
    assert code == 0 and lines, said
    for line in lines[:-1]:
        print(line)
    return dict(json.loads(lines[-1]))


@cache
def fingerprints() -> dict[str, str]:
    """Return the fingerprints of this machine's arithmetic."""
    return dict(trained({})["fingerprints"])


def killed(entry: Mapping[str, Any], folder: Path, round: int) -> int:
    """Train an entry in a folder, in a process that is killed after a round; returns its exit code."""
    with started(_worker, json.dumps(entry), "--kill", str(folder), str(round)) as process:
        return process.end()[0]


def gapsl(*arguments: str | Path, code: int = 0) -> str:
    """Run a gapsl command to its end; returns what it printed."""
    with started(_command, *map(str, arguments)) as process:
        ended, said = process.end()
    assert ended == code, said
    return said


class Started:
    """A process that runs beside us, and what it has printed."""

    def __init__(self, target: Callable[..., None], arguments: tuple[str, ...], output: Path) -> None:
        self._output = output
        self._process = ready().Process(target=target, args=(str(output), *arguments))
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def printed(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def stop(self) -> None:
        """Ask it to stop."""
        self._process.terminate()

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns its exit code and what it printed."""
        self._process.join(DEADLINE)
        assert self._process.exitcode is not None, f"it takes too long: {self.printed}"
        return self._process.exitcode, self.printed

    def close(self) -> None:
        """Be rid of it."""
        if self.running:
            self._process.kill()
        self._process.join()


@contextmanager
def started(target: Callable[..., None], *arguments: str) -> Iterator[Started]:
    """Start a process; it is gone at the end."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        output.touch()
        process = Started(target, arguments, output)
        try:
            yield process
        finally:
            process.close()


def running(*arguments: str | Path) -> AbstractContextManager[Started]:
    """Run a gapsl command beside us."""
    return started(_command, *map(str, arguments))


@cache
def ready() -> multiprocessing.context.ForkServerContext:
    """Return what starts processes: one that has our environment and has imported torch, and forks.

    Each is a real process of its own; only the two seconds of importing torch are saved.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo", "gapsl", "gapsl.cli"])  # those that there are
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def _into(output: str) -> None:
    """Send what this process prints into a file."""
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = (open(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))  # noqa: SIM115


def _command(output: str, *arguments: str) -> None:
    """Do what `python -m gapsl` does."""
    _into(output)
    sys.argv = ["gapsl", *arguments]
    runpy.run_module("gapsl", run_name="__main__", alter_sys=True)


def _worker(output: str, asked: str, *arguments: str) -> None:
    """Do what worker.py does."""
    _into(output)
    sys.stdin = io.StringIO(asked)
    sys.argv = ["worker.py", *arguments]
    runpy.run_path(str(HERE / "worker.py"), run_name="__main__")


def said(file: Path, process: Started) -> str:
    """Return what a process writes into a file, as soon as it is there."""
    wait(file.exists, process)
    return file.read_text(encoding="utf-8").strip()


def wait(happened: Callable[[], bool], process: Started) -> None:
    """Wait for something that happens while a process runs."""
    end = time.monotonic() + DEADLINE
    while not happened():
        assert process.running, f"it has ended: {process.printed}"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


# --- over the network: a server, a process for all devices, a parameter server where client-side models move


def networked(
    folder: Path,
    arguments: Iterable[str | Path],
    *,
    devices: int,
    parameters: bool,
    rounds: int | None = None,
) -> int:
    """Serve a run in `folder`/run to all of its devices; stopped after so many rounds, or trained to its end.

    Whatever is in the folder is gone on with. Returns the server's exit code.
    """
    run, state, parts = folder / "run", folder / "state", folder / "parameters"
    for old in (run / "address", parts / "address"):
        old.unlink(missing_ok=True)
    if parameters:
        asked = ["--devices", str(devices), "--listen", "localhost:0", "--state", parts]
        with running("parameter-server", *asked) as process:
            more = ["--parameter-server", said(parts / "address", process)]
            return _served(run, state, [*arguments, *more], devices, rounds)
    return _served(run, state, arguments, devices, rounds)


def _served(run: Path, state: Path, arguments: Iterable[str | Path], devices: int, rounds: int | None) -> int:
    with running("serve", "--out", run, "--listen", "localhost:0", *arguments) as server:
        address = said(run / "address", server)
        with running("join", "--server", address, "--devices", str(devices), "--state", state) as joined:
            if rounds is not None:
                wait(lambda: lines_of(run / "records.jsonl") >= rounds, server)
                server.stop()
            code, _ = server.end()
            if rounds is None:
                assert joined.end()[0] == 0
            return code


def lines_of(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def result_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "result.json").read_text(encoding="utf-8")))


def hash_of(run: Path) -> str:
    return str(result_of(run)["final"]["weights_sha256"])


# --- the fixtures: files of an older version, and what the present one makes of them


def resumed(folder: Path) -> str:
    """Finish the run that was killed."""
    run = shutil.copytree(FIXTURES / "unfinished", folder / "unfinished")
    gapsl("resume", run, "--quiet")
    return hash_of(run)


def divided(folder: Path) -> str:
    """Train with the partition."""
    file, run = FIXTURES / "partition" / "partition.json", folder / "divided"
    chosen = [
        "--config",
        FIXTURES / "finished" / "config.yaml",
        "--partition",
        f"file:{file}",
        "--rounds",
        "2",
    ]
    gapsl("train", *chosen, "--out", run, "--quiet")
    return hash_of(run)


def served(folder: Path) -> str:
    """Finish the run over the network that was stopped."""
    place = shutil.copytree(FIXTURES / "network", folder / "network")
    assert networked(place, [], devices=3, parameters=False) == 0
    return hash_of(place / "run")


FINISHED: dict[str, Callable[[Path], str]] = {
    "unfinished": resumed,
    "partition": divided,
    "network": served,
}
