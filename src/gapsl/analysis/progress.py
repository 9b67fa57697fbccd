"""How far training is: bars on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from gapsl.run.observers import Observer, Started
from gapsl.run.records import RoundRecord

OTHERS = 58  # columns of everything on a line but the name and a bar of four
PLAIN_EVERY = 10.0  # seconds between two plain lines, besides those for evaluations
DOWNLOAD = "download (MB)"


class Step(NamedTuple):
    """What a display shows of a round."""

    round: int
    loss: float | None  # None: no device had a finite one
    accuracy: float | None = None  # None: no evaluation in this round
    leaders: int | None = None  # None: the method chooses nobody
    kept: int | None = None

    @staticmethod
    def of(record: RoundRecord) -> Step:
        """Return what is shown of a record."""
        evaluation, chosen = record.evaluation, record.selection
        return Step(
            record.round,
            record.loss,
            None if evaluation is None else evaluation.device_mean,
            None if chosen is None else len(chosen.leader),
            None if chosen is None else len(chosen.kept),
        )

    @property
    def words(self) -> str:
        """The loss, and how many devices lead and are kept."""
        loss = "loss  n/a " if self.loss is None else f"loss {self.loss:.3f}"
        return loss if self.kept is None else f"{loss} led {self.leaders} kept {self.kept}"


@dataclass
class Shown:
    """A run on the display."""

    first: int
    total: int
    begun: float
    said: float  # when the last plain line was printed
    bar: TaskID | None
    round: int
    accuracy: str = ""

    @property
    def speed(self) -> float:
        """Rounds a second."""
        return (self.round - self.first + 1) / max(time.monotonic() - self.begun, 1e-9)


class Rate(ProgressColumn):
    """Rounds a second and the time left."""

    def render(self, task: Task) -> Text:
        """Show both, or dashes before anything is known; a bar may bring a text of its own."""
        if "left" in task.fields:
            return Text(task.fields["left"], style="cyan")
        if task.finished:
            return Text(f"done in {clock(task.finished_time or 0)}", style="green")
        if not task.speed or task.time_remaining is None:
            return Text("--/s --:--", style="dim")
        return Text(f"{task.speed:.1f}/s {clock(task.time_remaining)}", style="cyan")


class Display:
    """The bars of one run or several, or lines where there is no terminal; warnings are shown in any case."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console, self.quiet = console or Console(emoji=False), quiet
        self.live = not quiet and can_animate(self.console)
        self.runs: dict[str, Shown] = {}
        self._download: TaskID | None = None
        fixed = Column(no_wrap=True)  # so that the bar gives way instead
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=fixed),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=fixed),
            TextColumn("{task.fields[words]}", table_column=fixed),
            TextColumn("[bold]{task.fields[accuracy]}", table_column=fixed),
            Rate(table_column=fixed),
            console=self.console,
            expand=True,
        )

    def __enter__(self) -> Display:
        if self.live:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.bars.stop()

    def start(self, name: str, first: int, total: int) -> None:
        """Show a run that begins with a round."""
        now = time.monotonic()
        self.runs[name] = Shown(first, total, now, now, None, first - 1)
        if self.live:
            self.runs[name].bar = self.bars.add_task(
                shorten(name, self.console.width - OTHERS),
                total=total,
                completed=first - 1,
                words="",
                accuracy="",
            )
        elif first > 1:
            self.say(f"{name}: going on from round {first - 1} of {total}")

    def advance(self, name: str, step: Step) -> None:
        """Show a round that is done."""
        run = self.runs[name]
        run.round = step.round
        if step.accuracy is not None:
            run.accuracy = f"acc {step.accuracy:.3f}"
        if run.bar is not None:
            self.bars.update(run.bar, completed=step.round, words=step.words, accuracy=run.accuracy)
            return
        now = time.monotonic()
        wait = PLAIN_EVERY if step.accuracy is None else PLAIN_EVERY / 5
        if now - run.said >= wait or step.round == run.total:
            run.said = now
            left = clock((run.total - step.round) / run.speed)
            words = f"{step.words} {run.accuracy}".rstrip()
            self.line(f"{name}: round {step.round}/{run.total} {words} ({run.speed:.1f}/s, {left} left)")

    def evaluating(self, name: str, done: int, devices: int) -> None:
        """Show how far an evaluation is, where it takes long."""
        run, words, now = self.runs[name], f"evaluating {done}/{devices}", time.monotonic()
        if run.bar is not None:
            self.bars.update(run.bar, words=words)
        elif now - run.said >= PLAIN_EVERY:
            run.said = now
            self.line(f"{name}: {words} devices")

    def download(self, done: int, total: int | None) -> None:
        """Show how much of a file is there."""
        if not self.live:
            return
        if self._download is None:
            self._download = self.bars.add_task(DOWNLOAD, total=None, words="", accuracy="")
        mega = 1e6
        whole = None if total is None else round(total / mega)
        self.bars.update(self._download, completed=round(done / mega), total=whole)

    def warn(self, name: str, message: str) -> None:
        """Print a warning above the bars."""
        self.console.print("warning: ", style="yellow", end="", highlight=False)
        self.console.print(f"{name}: {message}", markup=False, highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        """Print how far a run is, where there are no bars."""
        self.say(text)

    def say(self, text: str) -> None:
        """Print a line, unless nobody wants to hear."""
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class RunProgress(Observer):
    """Shows one run on a display."""

    def __init__(self, display: Display, name: str) -> None:
        self._display, self._name = display, name

    def started(self, run: Started) -> None:
        self._display.start(self._name, run.first_round, run.total_rounds)

    def round(self, record: RoundRecord) -> None:
        self._display.advance(self._name, Step.of(record))

    def evaluating(self, done: int, devices: int) -> None:
        self._display.evaluating(self._name, done, devices)

    def warned(self, message: str) -> None:
        self._display.warn(self._name, message)


def can_animate(console: Console) -> bool:
    """Say whether bars can be redrawn: on a terminal, or in a notebook that has widgets."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


def clock(seconds: float) -> str:
    """Return a time as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shorten(name: str, room: int) -> str:
    """Return a name that fits, its end kept: that is where runs of a comparison differ."""
    room = max(8, room)
    return name if len(name) <= room else "…" + name[1 - room :]
