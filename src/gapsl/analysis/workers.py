"""The processes that train: so many runs at a time, each in a process of its own.

A run that its folder describes is trained by a fresh interpreter, which then takes the next one: importing
torch takes longer than many a run. A run with objects that only this process has is trained by a fork of it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gapsl.analysis import worker as child
from gapsl.analysis.progress import Display, Step
from gapsl.common.interrupt import Interrupt
from gapsl.run.config import Config


@dataclass(frozen=True)
class Job:
    """One run: what it is called, where its files go, and its settings."""

    name: str
    folder: Path
    config: Config


class Supply(Protocol):
    """Where jobs come from one by one, and who is told how each ended."""

    @property
    def left(self) -> bool:
        """Whether there may be another job later even if nothing runs meanwhile."""
        ...

    def take(self) -> Job | None:
        """Return the next job, None if there is none for now."""
        ...

    def ended(self, job: Job, code: int, message: str | None) -> None:
        """Take note of a job's exit code, and of the reason it gave if it failed."""
        ...


class Fork:
    """A fork of this process that trains one job with the objects it has; to be used as a `Popen`."""

    def __init__(self, job: Job, given: Mapping[str, Any]) -> None:
        events, pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(events)
            train_and_leave(job, given, pipe)
        os.close(pipe)
        self.stdin, self.stdout = None, os.fdopen(events, "rb", buffering=0)
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._code is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def train_and_leave(job: Job, given: Mapping[str, Any], pipe: int) -> None:
    """Train a job in a fork, and end it there: nothing of the parent's is cleaned up twice."""
    code = 1
    try:
        os.setsid()  # Ctrl-C reaches the workers through the parent, once
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        reporter = child.Reporter(pipe)
        with Interrupt() as interrupt:
            code = child.train(job.folder, reporter, interrupt, **given)
            reporter.send("ended", code)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def spawn(job: Job) -> subprocess.Popen[bytes]:
    """Start an interpreter that trains the runs whose names it is told."""
    # More threads than cores spin at barriers and slow everything down many times over.
    threads = str(job.config.threads)
    with (job.folder / child.LOG).open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, "-m", child.__name__, str(job.folder.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,  # until it has its first job, and a log with it
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            start_new_session=True,  # Ctrl-C reaches the workers through us, once
        )


class Worker:
    """A process that trains, the job it has, and what it said so far of an unfinished line."""

    def __init__(self, process: subprocess.Popen[bytes] | Fork, job: Job) -> None:
        assert process.stdout is not None
        self._process, self._jobs, self._events = process, process.stdin, process.stdout
        self._serves = (job.folder.parent, job.config.threads)
        self._heard = b""
        self.hand(job)

    def hand(self, job: Job) -> None:
        """Let it train a job; a fork has its one already."""
        self.job: Job | None = job
        self.message: str | None = None  # why the job failed
        if self._jobs is not None:
            with suppress(OSError):  # it has ended, and the end of its output will tell
                self._jobs.write(job.folder.name.encode() + b"\n")
                self._jobs.flush()

    def takes(self, job: Job) -> bool:
        """Say whether it is free, and a job may be handed to it."""
        free = self.job is None and self._jobs is not None
        return free and self._serves == (job.folder.parent, job.config.threads)

    def fileno(self) -> int:
        """Return where its events arrive."""
        return self._events.fileno()

    def hear(self) -> list[list[Any]] | None:
        """Return the events that have arrived, None when there will be no more."""
        chunk = os.read(self.fileno(), 1 << 16)
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        return [json.loads(line) for line in lines] if chunk else None

    def stop(self) -> None:
        """Ask it to checkpoint and end after its round."""
        if self._jobs is not None:
            with suppress(OSError):
                self._jobs.close()
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        code = self._process.wait()
        for pipe in (self._jobs, self._events):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return code

    def kill(self) -> None:
        """End it at once; where it has no job, nothing is lost."""
        self._process.send_signal(signal.SIGKILL)
        self.wait()


def run_supply(
    supply: Supply,
    *,
    workers: int,
    display: Display,
    stop: Callable[[], bool],
    given: Mapping[str, Any] | None = None,
) -> None:
    """Run what a supply has, so many at a time; when asked to stop, let each job checkpoint and end.

    `given` are objects that only this process has, as `gapsl.resume` takes them; None: there are none.
    """
    pool = Pool(supply, workers, display, given)
    stopping = False
    try:
        while True:
            if stop() and not stopping:
                stopping = True
                for worker in pool.workers:
                    worker.stop()
            if not stopping:
                pool.fill()
            if not pool.busy and (stopping or not supply.left):
                return
            pool.listen()
    finally:
        for worker in pool.workers:
            worker.kill()


class Pool:
    """The workers there are, and what they are at."""

    def __init__(self, supply: Supply, most: int, display: Display, given: Mapping[str, Any] | None) -> None:
        self._supply, self._most, self._display, self._given = supply, most, display, given
        self._selector = selectors.DefaultSelector()
        self.workers: list[Worker] = []

    @property
    def busy(self) -> int:
        """How many have a job."""
        return sum(worker.job is not None for worker in self.workers)

    def fill(self) -> None:
        """Hand out jobs while there are some, and workers for them."""
        while self.busy < self._most and (job := self._supply.take()) is not None:
            free = next((worker for worker in self.workers if worker.takes(job)), None)
            if free is not None:
                free.hand(job)
                continue
            if len(self.workers) >= self._most:
                self._dismiss(next(worker for worker in self.workers if worker.job is None)).kill()
            worker = Worker(spawn(job) if self._given is None else Fork(job, self._given), job)
            self.workers.append(worker)
            self._selector.register(worker, selectors.EVENT_READ)

    def listen(self) -> None:
        """Take note of what the workers say."""
        for key, _ in self._selector.select(timeout=0.2):
            worker = key.fileobj
            assert isinstance(worker, Worker)
            events = worker.hear()
            for event in events or []:
                self._note(worker, *event)
            if events is None:
                code = self._dismiss(worker).wait()
                if worker.job is not None:
                    self._supply.ended(worker.job, code, worker.message)

    def _note(self, worker: Worker, event: str, *values: Any) -> None:
        job = worker.job
        assert job is not None
        if event == "ended":
            worker.job = None
            self._supply.ended(job, values[0], worker.message)
        elif event == "failed":
            worker.message = values[0]
        elif event == "start":
            self._display.start(job.name, *values)
        elif event == "round":
            self._display.advance(job.name, Step(*values))
        elif event == "warning":
            self._display.warn(job.name, *values)

    def _dismiss(self, worker: Worker) -> Worker:
        self._selector.unregister(worker)
        self.workers.remove(worker)
        return worker
