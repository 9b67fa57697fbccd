"""How long runs take, from runs that were measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from gapsl.run.build import DEFAULT_EPOCHS
from gapsl.run.config import Config
from gapsl.run.loop import participants
from gapsl_reproduction.runs import Settings, defaults
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
