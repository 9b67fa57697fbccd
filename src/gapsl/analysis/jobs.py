"""Runs to do: one of them, a supply of them, and who is shown how they go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gapsl.run.config import Config

LOG = "log.txt"  # in a run's folder: what its process printed


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


class Listed:
    """A supply of jobs that are all known from the start."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting = deque(jobs)
        self.report = Report()

    @property
    def left(self) -> bool:
        """Whether some have not been taken."""
        return bool(self._waiting)

    def take(self) -> Job | None:
        """Return the next in the order given."""
        return self._waiting.popleft() if self._waiting else None

    def ended(self, job: Job, code: int, message: str | None) -> None:
        """Report it."""
        self.report.codes[job.name] = code
        if message is not None:
            self.report.messages[job.name] = message


class Display(Protocol):
    """What is shown while jobs run."""

    def event(self, job: Job, event: Mapping[str, Any]) -> None:
        """Take note of what a job says."""
        ...
