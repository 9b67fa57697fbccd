"""How far many runs are: a bar for the whole and one for each run that goes on, or a line a finished run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from gapsl.analysis.jobs import Job
from gapsl.analysis.progress import clock, fixed, shorten, summary
from gapsl_reproduction.estimate import Pace, time_left
from gapsl_reproduction.queue import Standing
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.store import Result

OTHERS = 58  # columns of everything on a line but the name and a bar of four
TRUSTED = 5  # rounds after which a run's own speed says how long it will take


@dataclass
class Going:
    """A run that goes on."""

    job: Job
    first: int
    total: int
    round: int
    begun: float
    accuracy: str = ""
    bar: TaskID | None = None

    def left(self, pace: Pace) -> float | None:
        """Return the seconds until it ends."""
        done = self.round - self.first + 1
        if done >= TRUSTED:
            return (time.monotonic() - self.begun) / done * (self.total - self.round)
        whole = pace.of_run(self.job.config)
        return None if whole is None else whole * (self.total - self.round) / self.total


class Overview:
    """Shows jobs as they go on and the whole they are part of; a watcher of a queue."""

    def __init__(self, console: Console, pace: Pace, *, workers: int, quiet: bool = False) -> None:
        self._console, self._pace, self._workers, self._quiet = console, pace, workers, quiet
        self._live = console.is_terminal and not quiet
        self._going: dict[str, Going] = {}
        self._waiting: list[float | None] = []  # seconds that the runs will take which have not begun
        self._begun, self._rounds = time.monotonic(), 0
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=fixed()),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=fixed()),
            TextColumn("{task.fields[words]}", table_column=fixed()),
            TextColumn("[cyan]{task.fields[left]}", table_column=fixed()),
            console=console,
            expand=True,
        )
        self._whole = self._progress.add_task("runs", total=None, words="", left="")

    def __enter__(self) -> Overview:
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._progress.stop()

    def begin(self, standing: Standing) -> None:
        """Say what there is to do."""
        self._count(standing)
        left = self._left()
        about = f", about {left} to go" if left and standing.waiting else ""
        self._say(f"{len(standing.done)} of {standing.total} runs are done{about}")

    def event(self, job: Job, event: Mapping[str, Any]) -> None:
        """Show what a job says."""
        if event["event"] == "started":
            self._start(job, event["first"], event["total"])
        elif event["event"] == "round":
            self._advance(self._going[job.name], event)
        elif event["event"] == "warning":
            self._say(f"{job.name}: {event['message']}", style="yellow")

    def stored(self, run: RunSpec, result: Result, standing: Standing) -> None:
        """Say how a run ended, and how far the whole is."""
        self._pace.learn(result)
        self._forget(run)
        self._count(standing)
        if "failed" in result:
            words, style = f"failed: {result['failed']}", "red"
        else:
            final = result["final"]
            words, style = f"{100 * final['device_mean']:.1f} % in {clock(result['elapsed'])}", None
        left = self._left()
        self._say(
            f"[{len(standing.done)}/{standing.total}] {run.name}: {words}"
            + (f" ({self._speed()}, {left} left)" if left else ""),
            style=style,
        )

    def gave_up(self, run: RunSpec, message: str) -> None:
        """Say that a run ended without a result."""
        self._forget(run)
        self._say(f"{run.name}: {message}", style="red")

    def _start(self, job: Job, first: int, total: int) -> None:
        going = Going(job, first, total, first - 1, time.monotonic())
        self._going[job.name] = going
        if self._live:
            going.bar = self._progress.add_task(
                shorten(job.name, self._console.width - OTHERS),
                total=total,
                completed=first - 1,
                words="",
                left="",
            )
        if first > 1:
            self._say(f"{job.name}: going on from round {first - 1} of {total}")

    def _advance(self, going: Going, event: Mapping[str, Any]) -> None:
        going.round = event["round"]
        self._rounds += 1
        if event.get("evaluation"):
            going.accuracy = f" acc {event['evaluation']['device_mean']:.3f}"
        if going.bar is not None:
            left = going.left(self._pace)
            self._progress.update(
                going.bar,
                completed=going.round,
                words=summary(event) + going.accuracy,
                left="" if left is None else clock(left),
            )
            self._progress.update(self._whole, words=self._speed(), left=self._left())

    def _forget(self, run: RunSpec) -> None:
        going = self._going.pop(run.name, None)
        if going is not None and going.bar is not None:
            self._progress.remove_task(going.bar)

    def _count(self, standing: Standing) -> None:
        self._waiting = [self._pace.of_run(run.config) for run in standing.waiting]
        self._progress.update(
            self._whole, total=standing.total, completed=len(standing.done), left=self._left()
        )

    def _speed(self) -> str:
        return f"{self._rounds / max(time.monotonic() - self._begun, 1e-9):.1f} rounds/s"

    def _left(self) -> str:
        running = [going.left(self._pace) for going in self._going.values()]
        left = time_left(self._waiting, running, self._workers)
        return "" if left is None else clock(left)

    def _say(self, message: str, style: str | None = None) -> None:
        if not self._quiet or style is not None:  # what went wrong is said in any case
            self._console.print(message, style=style, markup=False, highlight=False, soft_wrap=True)
