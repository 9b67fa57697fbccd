"""How far many runs are: a bar for the whole and one for each run that goes on, and how long it takes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from rich.console import Console

from gapsl.analysis.progress import Display, Shown, Step, clock
from gapsl.run.build import DEFAULT_EPOCHS
from gapsl.run.config import Config
from gapsl.run.loop import participants
from gapsl_reproduction.queue import Standing
from gapsl_reproduction.runs import RunSpec, Settings, defaults
from gapsl_reproduction.store import Result

# How many there are to train on, for runs whose length is given in epochs.
TRAINING_SAMPLES = {"digits": 1437, "fashion-mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000}
FAMILIES = ("dataset", "model", "width", "norm", "patch")  # what the cost of a sample depends on most


class Pace:
    """Seconds a training sample costs, by model and method, as far as it was measured."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self._seconds: defaultdict[tuple[Any, ...], float] = defaultdict(float)
        self._samples: defaultdict[tuple[Any, ...], float] = defaultdict(float)
        for result in results:
            self.learn(result)

    def learn(self, result: Result) -> None:
        """Take a stored run's time into account."""
        values = {**defaults(), **result["config"]}  # what a stored result leaves out is in that table
        samples = result["rounds"] * per_round(values)
        for group in groups(values):
            self._seconds[group] += result["elapsed"]
            self._samples[group] += samples

    def of_sample(self, config: Config) -> float | None:
        """Return what a sample costs: of the same model and method if known, else of anything known."""
        for group in groups(config.resolved()):
            if self._samples[group]:
                return self._seconds[group] / self._samples[group]
        return None

    def of_run(self, config: Config) -> float | None:
        """Return what a whole run costs, None if nothing was measured yet."""
        cost = self.of_sample(config)
        return None if cost is None else cost * samples_of(config)


def groups(values: Settings) -> Iterable[tuple[Any, ...]]:
    """Yield the groups a run's cost counts in, the most alike first."""
    model = tuple(values[name] for name in FAMILIES)
    yield (*model, values["method"])
    yield model
    yield ()


def per_round(values: Mapping[str, Any]) -> int:
    """Return the samples of a round."""
    return participants(values["devices"], values["participation"]) * int(values["batch_size"])


def samples_of(config: Config) -> float:
    """Return how many samples a run trains on, each pass counted."""
    if config.rounds is not None:
        return float(config.rounds * per_round(config.resolved()))
    available = config.train_samples or TRAINING_SAMPLES.get(config.dataset, 50_000)
    return (config.epochs or DEFAULT_EPOCHS) * available * (1 - config.validation)


def time_left(waiting: Iterable[float | None], running: Iterable[float | None], workers: int) -> float | None:
    """Return the seconds until all is done, None if too little is known."""
    every = [*waiting, *running]
    known = [seconds for seconds in every if seconds is not None]
    if not known:
        return None if every else 0.0
    mean = sum(known) / len(known)
    total = sum(known) + mean * (len(every) - len(known))
    return max(total / workers, max(known))


TRUSTED = 5  # rounds after which a run's own speed says how long it will take


class QueueProgress(Display):
    """Shows runs as they go on and the whole they are part of; a watcher of a queue."""

    def __init__(self, console: Console, pace: Pace, *, workers: int, quiet: bool = False) -> None:
        super().__init__(console, quiet=quiet)
        self._pace, self._workers = pace, workers
        self._configs: dict[str, Config] = {}  # of the runs that are not done, by name
        self._waiting: list[float | None] = []  # seconds that the runs will take which have not begun
        self._longer: dict[str, float] = {}  # how much longer runs take here than those that were measured
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
        run, measured = self.runs[name], self._measured(name)
        if measured and self._trusted(run):
            self._longer[name] = run.total / run.speed / measured
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
        longer = fmean(self._longer.values()) if self._longer else 1.0
        waiting = [None if seconds is None else longer * seconds for seconds in self._waiting]
        left = time_left(waiting, running, self._workers)
        return "" if left is None else clock(left)

    def _seconds_left(self, name: str, run: Shown) -> float | None:
        """Return the seconds until a run ends."""
        if self._trusted(run):
            return (run.total - run.round) / run.speed
        whole = self._measured(name)
        return None if whole is None else whole * (run.total - run.round) / run.total

    def _measured(self, name: str) -> float | None:
        """Return the seconds that a run took where such runs were measured."""
        return self._pace.of_run(self._configs[name]) if name in self._configs else None

    @staticmethod
    def _trusted(run: Shown) -> bool:
        return run.round - run.first + 1 >= TRUSTED

    def _tell(self, text: str, style: str) -> None:
        """Print what went wrong, which is said in any case."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def score(result: Result) -> str:
    """Return how well a run did, and how long it took."""
    return f"{100 * result['final']['device_mean']:.1f} % in {clock(result['elapsed'])}"
