"""The processes that train: each does one job after another, with one thread."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapsl.analysis.jobs import LOG, Display, Job, Supply


@dataclass
class Worker:
    """A process that trains one job after another, and what it said so far of an unfinished line."""

    process: subprocess.Popen[bytes]
    home: Path  # the folder its jobs are in
    threads: int
    job: Job | None = None
    message: str | None = None  # why its job failed
    heard: bytes = b""

    def fits(self, job: Job) -> bool:
        """Say whether a job may be handed to this process."""
        return self.job is None and (job.folder.parent, job.config.threads) == (self.home, self.threads)

    def hand(self, job: Job) -> None:
        """Let it train a job."""
        assert self.process.stdin is not None
        self.job, self.message = job, None
        with suppress(OSError):  # it has ended, and the end of its output will tell
            self.process.stdin.write(job.folder.name.encode() + b"\n")
            self.process.stdin.flush()

    def hear(self) -> list[dict[str, Any]] | None:
        """Return the events that have arrived, None when there will be no more."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.heard = (self.heard + chunk).split(b"\n")
        return [json.loads(line) for line in lines] if chunk else None

    def stop(self) -> None:
        """Ask it to checkpoint and end after its round."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """End it at once; where it has no job, nothing is lost."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()


def run_supply(supply: Supply, *, workers: int, display: Display, stop: Callable[[], bool]) -> None:
    """Run what a supply has, so many at a time; when asked to stop, let each job checkpoint and end."""
    stopping = False
    with selectors.DefaultSelector() as selector:
        crew: list[Worker] = []
        try:
            while True:
                if stop() and not stopping:
                    stopping = True
                    for worker in crew:
                        worker.stop()
                while not stopping and sum(worker.job is not None for worker in crew) < workers:
                    job = supply.take()
                    if job is None:
                        break
                    _worker_for(job, crew, workers, selector).hand(job)
                if not any(worker.job for worker in crew) and (stopping or not supply.left):
                    return
                for key, _ in selector.select(timeout=0.2):
                    worker = key.data
                    events = worker.hear()
                    for event in events or []:
                        _take_note(worker, event, supply, display)
                    if events is None:
                        _gone(worker, crew, selector, supply)
        finally:
            for worker in crew:
                worker.end()


def _take_note(worker: Worker, event: Mapping[str, Any], supply: Supply, display: Display) -> None:
    """Pass on what a worker says of its job."""
    assert worker.job is not None
    job = worker.job
    if event["event"] == "ended":
        worker.job = None
        supply.ended(job, event["code"], worker.message)
        return
    if event["event"] == "failed":
        worker.message = event["message"]
    display.event(job, event)


def _gone(worker: Worker, crew: list[Worker], selector: selectors.BaseSelector, supply: Supply) -> None:
    """Take leave of a worker whose process has ended, with its job done or not."""
    assert worker.process.stdout is not None
    selector.unregister(worker.process.stdout)
    crew.remove(worker)
    code = worker.process.wait()
    worker.end()
    if worker.job is not None:
        supply.ended(worker.job, code, worker.message)


def _worker_for(job: Job, crew: list[Worker], most: int, selector: selectors.BaseSelector) -> Worker:
    """Return a worker without a job: importing torch takes longer than many a job."""
    for worker in crew:
        if worker.fits(job):
            return worker
    if len(crew) >= most:
        idle = next(worker for worker in crew if worker.job is None)
        assert idle.process.stdout is not None
        selector.unregister(idle.process.stdout)
        crew.remove(idle)
        idle.end()
    worker = Worker(_start(job), job.folder.parent, job.config.threads)
    crew.append(worker)
    assert worker.process.stdout is not None
    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
    return worker


def _start(job: Job) -> subprocess.Popen[bytes]:
    # More threads than cores spin at barriers and slow everything down many times over.
    threads = str(job.config.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with (job.folder / LOG).open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gapsl.analysis.worker", str(job.folder.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,  # until it has its first job, and a log with it
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the workers through us, once
        )
