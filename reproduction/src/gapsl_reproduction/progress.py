"""How far many runs are: a bar for the whole and one for each run that goes on, or a line a finished run."""

from __future__ import annotations

import time

from rich.console import Console

from gapsl.analysis.progress import Display, Shown, Step, clock
from gapsl.run.config import Config
from gapsl_reproduction.estimate import Pace, time_left
from gapsl_reproduction.queue import Standing
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.store import Result

TRUSTED = 5  # rounds after which a run's own speed says how long it will take


class QueueProgress(Display):
    """Shows runs as they go on and the whole they are part of; a watcher of a queue."""

    def __init__(self, console: Console, pace: Pace, *, workers: int, quiet: bool = False) -> None:
        super().__init__(console, quiet=quiet)
        self._pace, self._workers = pace, workers
        self._configs: dict[str, Config] = {}  # of the runs that are not done, by name
        self._waiting: list[float | None] = []  # seconds that the runs will take which have not begun
        self._begun, self._rounds = time.monotonic(), 0
        self._whole = self.bars.add_task("runs", total=None, words="", accuracy="", left="")

    def __enter__(self) -> QueueProgress:
        super().__enter__()
        return self

    def begin(self, standing: Standing) -> None:
        """Say what there is to do."""
        self._count(standing)
        left = self._left()
        about = f", about {left} to go" if left and standing.waiting else ""
        self.say(f"{len(standing.done)} of {standing.total} runs are done{about}")

    def advance(self, name: str, step: Step) -> None:
        """Show a round of a run that goes on."""
        super().advance(name, step)
        self._rounds += 1
        self.bars.update(self._whole, words=self._speed(), left=self._left())

    def line(self, text: str) -> None:
        """Say nothing of single rounds: there are too many runs."""

    def warn(self, name: str, message: str) -> None:
        """Print a warning."""
        self._tell(f"{name}: {message}", "yellow")

    def stored(self, run: RunSpec, result: Result, standing: Standing) -> None:
        """Say how a run ended, and how far the whole is."""
        self._pace.learn(result)
        self._forget(run)
        self._count(standing)
        failed = "failed" in result
        words = f"failed: {result['failed']}" if failed else score(result)
        left = self._left()
        about = f" ({self._speed()}, {left} left)" if left else ""
        text = f"[{len(standing.done)}/{standing.total}] {run.name}: {words}{about}"
        self._tell(text, "red") if failed else self.say(text)

    def gave_up(self, run: RunSpec, message: str) -> None:
        """Say that a run ended without a result."""
        self._forget(run)
        self._tell(f"{run.name}: {message}", "red")

    def _forget(self, run: RunSpec) -> None:
        shown = self.runs.pop(run.name, None)
        if shown is not None and shown.bar is not None:
            self.bars.remove_task(shown.bar)

    def _count(self, standing: Standing) -> None:
        self._configs |= {run.name: run.config for run in (*standing.waiting, *standing.running)}
        self._waiting = [self._pace.of_run(run.config) for run in standing.waiting]
        self.bars.update(self._whole, total=standing.total, completed=len(standing.done), left=self._left())

    def _speed(self) -> str:
        return f"{self._rounds / max(time.monotonic() - self._begun, 1e-9):.1f} rounds/s"

    def _left(self) -> str:
        running = [self._seconds_left(name, run) for name, run in self.runs.items()]
        left = time_left(self._waiting, running, self._workers)
        return "" if left is None else clock(left)

    def _seconds_left(self, name: str, run: Shown) -> float | None:
        """Return the seconds until a run ends."""
        if run.round - run.first + 1 >= TRUSTED:
            return (run.total - run.round) / run.speed
        whole = self._pace.of_run(self._configs[name]) if name in self._configs else None
        return None if whole is None else whole * (run.total - run.round) / run.total

    def _tell(self, text: str, style: str) -> None:
        """Print what went wrong, which is said in any case."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def score(result: Result) -> str:
    """Return how well a run did, and how long it took."""
    return f"{100 * result['final']['device_mean']:.1f} % in {clock(result['elapsed'])}"
