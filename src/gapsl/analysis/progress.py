"""How far training is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from gapsl.run.observers import Observer, Started

OTHERS = 58  # columns of everything on a line but the name and a bar of four
PLAIN_EVERY = 10.0  # seconds between two plain lines, besides those for evaluations


def fixed() -> Column:
    """Return a column that is never wrapped, so that the bar gives way instead."""
    return Column(no_wrap=True)


class Rate(ProgressColumn):
    """Rounds a second and the time left."""

    def render(self, task: Task) -> Text:
        """Show both, or dashes before anything is known."""
        if task.finished:
            return Text(f"done in {clock(task.finished_time or 0)}", style="green")
        if not task.speed or task.time_remaining is None:
            return Text("--/s --:--", style="dim")
        return Text(f"{task.speed:.1f}/s {clock(task.time_remaining)}", style="cyan")


def clock(seconds: float) -> str:
    """Return a time as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shorten(name: str, room: int) -> str:
    """Return a name that fits, its end kept: that is where runs of a comparison differ."""
    room = max(8, room)
    return name if len(name) <= room else "…" + name[1 - room :]


def summary(record: Mapping[str, Any]) -> str:
    """Return a round in a few words: loss, leaders and kept devices."""
    words = [f"loss {record['loss']:.3f}" if record.get("loss") is not None else "loss  n/a "]
    if "kept" in record:
        words.append(f"led {len(record['leader'])} kept {len(record['kept'])}")
    return " ".join(words)


class Board:
    """The bars of one or several runs on a terminal, or lines where there is none."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.live = console.is_terminal and not quiet
        self._tasks: dict[str, Any] = {}
        self._state: dict[str, dict[str, Any]] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=fixed()),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=fixed()),
            TextColumn("{task.fields[words]}", table_column=fixed()),
            TextColumn("[bold]{task.fields[accuracy]}", table_column=fixed()),
            Rate(table_column=fixed()),
            console=console,
            expand=True,
        )

    def __enter__(self) -> Board:
        if self.live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self._progress.stop()

    def start(self, name: str, first: int, total: int) -> None:
        """Show a run that begins with a round."""
        now = time.monotonic()
        self._state[name] = {"begun": now, "said": now, "first": first, "total": total, "accuracy": ""}
        if self.live:
            self._tasks[name] = self._progress.add_task(
                shorten(name, self.console.width - OTHERS),
                total=total,
                completed=first - 1,
                words="",
                accuracy="",
            )
        elif first > 1 and not self.quiet:
            self.console.print(f"{name}: going on from round {first - 1} of {total}", highlight=False)

    def advance(self, name: str, record: Mapping[str, Any]) -> None:
        """Show a round that is done."""
        state = self._state[name]
        evaluation = record.get("evaluation")
        if evaluation:
            state["accuracy"] = f"acc {evaluation['device_mean']:.3f}"
        if self.live:
            self._progress.update(
                self._tasks[name],
                completed=record["round"],
                words=summary(record),
                accuracy=state["accuracy"],
            )
            return
        if self.quiet:
            return
        now = time.monotonic()
        last = record["round"] == state["total"]
        if now - state["said"] < (PLAIN_EVERY / 5 if evaluation else PLAIN_EVERY) and not last:
            return
        state["said"] = now
        done = record["round"] - state["first"] + 1
        speed = done / max(now - state["begun"], 1e-9)
        left = clock((state["total"] - record["round"]) / speed)
        words = f"{summary(record)} {state['accuracy']}".rstrip()
        self.console.print(
            f"{name}: round {record['round']}/{state['total']} {words} ({speed:.1f}/s, {left} left)",
            highlight=False,
            soft_wrap=True,
        )

    def evaluating(self, name: str, done: int, devices: int) -> None:
        """Show how far an evaluation is, where it takes long."""
        words, state, now = f"evaluating {done}/{devices}", self._state[name], time.monotonic()
        if self.live:
            self._progress.update(self._tasks[name], words=words)
        elif not self.quiet and now - state["said"] >= PLAIN_EVERY:
            state["said"] = now
            self.console.print(f"{name}: {words} devices", highlight=False)

    def download(self, done: int, total: int | None) -> None:
        """Show how much of a file is there."""
        if not self.live:
            return
        if "download" not in self._tasks:
            self._tasks["download"] = self._progress.add_task(
                "download (MB)", total=None, words="", accuracy=""
            )
        mega = 1e6
        self._progress.update(
            self._tasks["download"],
            completed=round(done / mega),
            total=None if total is None else round(total / mega),
        )

    def warn(self, message: str) -> None:
        """Print a warning above the bars."""
        self.console.print("warning: ", style="yellow", end="", highlight=False)
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)


class RunProgress(Observer):
    """Shows one run on a board."""

    def __init__(self, board: Board, name: str) -> None:
        self._board, self._name = board, name

    def started(self, run: Started) -> None:
        """Add the run."""
        self._board.start(self._name, run.first_round, run.total_rounds)

    def round(self, record: Mapping[str, Any]) -> None:
        """Show the round."""
        self._board.advance(self._name, record)

    def evaluating(self, done: int, devices: int) -> None:
        """Show the evaluation."""
        self._board.evaluating(self._name, done, devices)

    def warned(self, message: str) -> None:
        """Print the warning."""
        self._board.warn(f"{self._name}: {message}")
