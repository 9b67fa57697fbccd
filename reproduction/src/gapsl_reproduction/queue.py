"""The runs that are wanted and not stored yet, taken one by one; what ends is stored at once."""

from __future__ import annotations

import shutil
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gapsl.analysis.worker import LOG
from gapsl.analysis.workers import Job
from gapsl.common.errors import GapslError, InputError, TrainingStopped
from gapsl.run.config import differing
from gapsl.run.folder import RunFolder
from gapsl_reproduction.runs import RunSpec, Wanted
from gapsl_reproduction.store import Result, Store
from gapsl_reproduction.summary import summarise, summarise_failure

KEPT = ".kept"  # in the folder of a run that stays when its result is stored
STOPPED = {130, -signal.SIGINT, -signal.SIGTERM}  # how a run ends that somebody stopped


@dataclass(frozen=True)
class Standing:
    """How far the whole of it is."""

    done: Sequence[RunSpec]  # in the store, finished or failed
    waiting: Sequence[RunSpec]  # not begun; those whose settings are still open with stand-ins
    running: Sequence[RunSpec]
    errors: Sequence[RunSpec]  # ended by something else than training, and not tried again now

    @property
    def total(self) -> int:
        """How many runs there are."""
        return len(self.done) + len(self.waiting) + len(self.running) + len(self.errors)


class Watcher(Protocol):
    """Who is told of every run that ends."""

    def stored(self, run: RunSpec, result: Result, standing: Standing) -> None:
        """Take note of a run that is in the store now, finished or failed."""
        ...

    def gave_up(self, run: RunSpec, message: str) -> None:
        """Take note of a run that ended without a result."""
        ...


class Queue:
    """A supply of jobs that follows a plan, which may want more whenever something has ended."""

    def __init__(
        self,
        plan: Callable[[], Wanted],
        store: Store,
        work: Path,
        watcher: Watcher,
        *,
        keep: bool = False,
        retry_failed: bool = False,
    ) -> None:
        self._plan, self._store, self._work, self._watcher = plan, store, work, watcher
        self._keep, self._retry = keep, retry_failed
        self._running: dict[str, RunSpec] = {}
        self._tried: set[str] = set()  # ended while this queue was there
        self.errors: dict[str, tuple[RunSpec, int, str]] = {}  # exit code and message
        self._wanted = plan()
        self._waiting = deque(self._not_done())
        self._taken_elsewhere = False
        self._tidy()

    @property
    def left(self) -> bool:
        """Whether a run waits only because another process, about to end, is in its folder."""
        return self._taken_elsewhere

    def standing(self) -> Standing:
        """Return how far the whole of it is."""
        every = {run.key: run for run in (*self._wanted.runs, *self._wanted.open)}
        done, waiting, errors = [], [], []
        for run in every.values():
            result = self._store.get(run.key)
            if run.key in self.errors:
                errors.append(run)
            elif result is not None and not self._again(run):
                done.append(run)
            elif run.key not in self._running:
                waiting.append(run)
        return Standing(done, waiting, list(self._running.values()), errors)

    def take(self) -> Job | None:
        """Return the next run, laid out in its folder, None if there is none for now."""
        self._taken_elsewhere = False
        for _ in range(len(self._waiting)):
            run = self._waiting.popleft()
            folder = RunFolder(self._work / run.key)
            if in_use(folder):  # by a worker that finishes its round after its parent was killed
                self._waiting.append(run)
                self._taken_elsewhere = True
                continue
            self._lay_out(run, folder)
            self._running[run.key] = run
            return Job(run.name, folder.path, run.config)
        return None

    def ended(self, job: Job, code: int, message: str | None) -> None:
        """Store what came of a run, and plan again."""
        run = self._running.pop(job.folder.name)
        if code in STOPPED:
            return
        self._tried.add(run.key)
        folder = RunFolder(job.folder)
        if self._keep:
            (folder.path / KEPT).touch()
        try:
            if code == 0:
                self._store.put(summarise(run, folder))
            elif code == TrainingStopped.exit_code and message is not None:
                self._store.put(summarise_failure(run, folder, message))
            else:
                raise InputError(message or f"ended with code {code}; see {folder.path / LOG}")
        except GapslError as error:
            self.errors[run.key] = (run, code or error.exit_code, str(error))
            self._watcher.gave_up(run, str(error))
        else:
            discard(folder)
        self._wanted = self._plan()
        self._waiting = deque(self._not_done())
        result = self._store.get(run.key)
        if result is not None and run.key not in self.errors:
            self._watcher.stored(run, result, self.standing())

    def _not_done(self) -> list[RunSpec]:
        return [
            run
            for run in self._wanted.runs
            if run.key not in self._running
            and run.key not in self.errors
            and (self._store.get(run.key) is None or self._again(run))
        ]

    def _again(self, run: RunSpec) -> bool:
        """Say whether a run that failed before is to be tried once more."""
        result = self._store.get(run.key)
        return self._retry and result is not None and "failed" in result and run.key not in self._tried

    def _tidy(self) -> None:
        """Remove what is left of runs that were stored just before the process was killed."""
        for run in self._wanted.runs:
            folder = RunFolder(self._work / run.key)
            if self._store.get(run.key) is not None and not in_use(folder):
                discard(folder)

    def _lay_out(self, run: RunSpec, folder: RunFolder) -> None:
        """Make a run's folder, or keep one in which the same run was begun."""
        if folder.path.exists() and (self._again(run) or not begun(run, folder)):
            shutil.rmtree(folder.path)
        if not folder.path.exists():
            RunFolder.create(folder.path, run.config, {})


def discard(folder: RunFolder) -> None:
    """Remove the folder of a run that is stored, unless it is to stay."""
    if folder.path.exists() and not (folder.path / KEPT).exists():
        shutil.rmtree(folder.path, ignore_errors=True)


def in_use(folder: RunFolder) -> bool:
    """Say whether a process trains in a folder."""
    if not folder.path.exists():
        return False
    try:
        with folder.locked():
            return False
    except GapslError:
        return True


def begun(run: RunSpec, folder: RunFolder) -> bool:
    """Say whether a folder has this very run in it, to go on with."""
    try:
        return not differing(folder.config()[0], run.config)
    except InputError:  # killed while the folder was made
        return False
