"""Runs side by side in processes, one thread each; what is finished is skipped, the rest goes on."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from gapsl.errors import InputError
from gapsl.simulation import INCIDENTAL
from gapsl.training.config import Config
from gapsl.training.folder import RunFolder


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


def lay_out(jobs: Sequence[Job]) -> list[Job]:
    """Make the jobs' folders and return the jobs that are not finished.

    A folder that has the same run in it already is gone on with; another run in it is an error.
    """
    open_jobs = []
    for job in jobs:
        if RunFolder(job.folder).config_file.exists():
            folder = RunFolder.open(job.folder)
            before, now = folder.config()[0].resolved(), job.config.resolved()
            differing = [k for k in now if k not in INCIDENTAL and before.get(k) != now[k]]
            if differing:
                raise InputError(
                    f"{job.folder} has a run with other settings in it ({', '.join(differing)} differ); "
                    "choose another folder with --out, or repeat the command it was started with"
                )
            if folder.result() is not None:
                continue
        else:
            RunFolder.create(job.folder, job.config, {})
        open_jobs.append(job)
    return open_jobs


def run_jobs(jobs: Sequence[Job], *, workers: int, display: Display, stop: Callable[[], bool]) -> Report:
    """Run the jobs, so many at a time; when asked to stop, let each checkpoint and end."""
    report = Report()
    waiting = list(jobs)
    running: dict[IO[str], tuple[Job, subprocess.Popen[str]]] = {}
    stopping = False
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                if stop() and not stopping:
                    stopping = True
                    waiting.clear()
                    for _, process in running.values():
                        process.send_signal(signal.SIGINT)
                while waiting and len(running) < workers:
                    job = waiting.pop(0)
                    process = _start(job)
                    assert process.stdout is not None
                    running[process.stdout] = (job, process)
                    selector.register(process.stdout, selectors.EVENT_READ)
                for key, _ in selector.select(timeout=0.2):
                    pipe = key.fileobj
                    assert not isinstance(pipe, int)
                    job, process = running[pipe]  # type: ignore[index]
                    line = pipe.readline()  # type: ignore[union-attr]
                    if line:
                        event = json.loads(line)
                        if event["event"] == "failed":
                            report.messages[job.name] = event["message"]
                        display.event(job, event)
                        continue
                    selector.unregister(pipe)
                    del running[pipe]  # type: ignore[arg-type]
                    report.codes[job.name] = process.wait()
                    display.event(job, {"event": "ended", "code": report.codes[job.name]})
        finally:
            for _, process in running.values():
                process.kill()
    return report


def _start(job: Job) -> subprocess.Popen[str]:
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
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the workers through us, once
        )
