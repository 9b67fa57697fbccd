"""Runs side by side in processes, one thread each; what is finished is skipped, the rest goes on."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gapsl.errors import InputError
from gapsl.files import write_json
from gapsl.simulation import INCIDENTAL
from gapsl.training.config import Config, sections
from gapsl.training.folder import RunFolder

ORDER = "order.json"  # the names of a comparison's runs, in the order they were asked for


@dataclass(frozen=True)
class Job:
    """One run: what it is called, where its files go, and its settings."""

    name: str
    folder: Path
    config: Config


@dataclass
class Report:
    """How the jobs ended: exit codes and error messages by name."""

    codes: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)


class Display(Protocol):
    """What is shown while jobs run."""

    def event(self, job: Job, event: Mapping[str, Any]) -> None:
        """Take note of what a job says."""
        ...


def lay_out(out: Path, jobs: Sequence[Job]) -> list[Job]:
    """Make the jobs' folders in `out` and return the jobs that are not finished.

    A folder that has the same run in it already is gone on with; another run in it is an error.
    """
    if RunFolder(out).config_file.exists():
        raise InputError(f"{out} has a single run in it; choose another folder with --out")
    open_jobs = [job for job in jobs if not _finished(job)]  # refuses before anything is written
    earlier = [run for run in runs_in(out, complete=False) if run.path not in {job.folder for job in jobs}]
    for run in earlier:
        differing = _differing(run, jobs[0].config, beyond={"method", "seed", *sections()})
        if differing:
            raise InputError(
                f"{out} has runs of another comparison in it ({', '.join(differing)} differ in "
                f"{run.path.name}); choose another folder with --out"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        # First, so that a folder that is missing after a crash can be told.
        names = [*(run.path.name for run in earlier), *(job.name for job in jobs)]
        write_json(out / ORDER, names)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror or error}; choose another --out") from None
    for job in open_jobs:
        if not RunFolder(job.folder).config_file.exists():
            RunFolder.create(job.folder, job.config, {})
    return open_jobs


def _finished(job: Job) -> bool:
    """Say whether a job's run is done; refuse a folder with anything else in it."""
    folder = RunFolder(job.folder)
    if not folder.config_file.exists():
        folder.check_free()
        return False
    differing = _differing(folder, job.config)
    if differing:
        raise InputError(
            f"{job.folder} has a run with other settings in it ({', '.join(differing)} differ); "
            "choose another folder with --out, or repeat the command it was started with"
        )
    return folder.result() is not None


def _differing(folder: RunFolder, config: Config, beyond: Collection[str] = ()) -> list[str]:
    """Return the settings in which a stored run differs, other than those that may."""
    before, now = folder.config()[0].resolved(), config.resolved()
    names = {*before, *now} - INCIDENTAL - set(beyond)
    return sorted(name for name in names if before.get(name) != now.get(name))


def runs_in(out: Path, *, complete: bool = True) -> list[RunFolder]:
    """Return the runs in a folder: its own if it is a run's, else a comparison's in its order."""
    if RunFolder(out).config_file.is_file():
        return [RunFolder(out)]
    found = {path.parent.name: RunFolder(path.parent) for path in sorted(out.glob("*/config.yaml"))}
    try:
        order = json.loads((out / ORDER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        order = []
    missing = [name for name in order if name not in found]
    if missing and complete:
        raise InputError(
            f"{out} was stopped while its folders were made ({', '.join(missing)} missing); "
            "repeat the gapsl compare command it was started with"
        )
    return [found[name] for name in dict.fromkeys([*order, *found]) if name in found]


@dataclass
class Worker:
    """A job's process and what it said so far of an unfinished line."""

    job: Job
    process: subprocess.Popen[bytes]
    heard: bytes = b""

    def hear(self) -> list[dict[str, Any]] | None:
        """Return the events that have arrived, None when there will be no more."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.heard = (self.heard + chunk).split(b"\n")
        return [json.loads(line) for line in lines] if chunk else None


def run_jobs(jobs: Sequence[Job], *, workers: int, display: Display, stop: Callable[[], bool]) -> Report:
    """Run the jobs, so many at a time; when asked to stop, let each checkpoint and end."""
    report = Report()
    waiting, running = list(jobs), list[Worker]()
    stopping = False
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                if stop() and not stopping:
                    stopping = True
                    waiting.clear()
                    for worker in running:
                        worker.process.send_signal(signal.SIGINT)
                while waiting and len(running) < workers:
                    worker = Worker(waiting[0], _start(waiting.pop(0)))
                    running.append(worker)
                    assert worker.process.stdout is not None
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                for key, _ in selector.select(timeout=0.2):
                    worker = key.data
                    events = worker.hear()
                    if events is None:
                        selector.unregister(key.fileobj)
                        running.remove(worker)
                        report.codes[worker.job.name] = worker.process.wait()
                    for event in events or []:
                        if event["event"] == "failed":
                            report.messages[worker.job.name] = event["message"]
                        display.event(worker.job, event)
        finally:
            for worker in running:
                worker.process.kill()
    return report


def _start(job: Job) -> subprocess.Popen[bytes]:
    # More threads than cores spin at barriers and slow everything down many times over.
    threads = str(job.config.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    log = (job.folder / "log.txt").open("a", encoding="utf-8")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "gapsl.experiments.worker", str(job.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the workers through us, once
        )
