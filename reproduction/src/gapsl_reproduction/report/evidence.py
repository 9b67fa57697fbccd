"""The stored results by their place in the experiments: line, workload, partition, point of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from gapsl_reproduction.catalogue import EXPERIMENTS, Point, Scale
from gapsl_reproduction.catalogue.tuning import Results
from gapsl_reproduction.store import Result

Runs = Mapping[int, Result]  # by seed


@dataclass(frozen=True)
class Place:
    """Where a number belongs, whichever experiment asks for it."""

    line: str
    workload: str = "cifar10"
    partition: str = "non-iid"
    sweep: str | None = None
    at: str | None = None


def place_of(point: Point) -> Place:
    """Return where a point's numbers belong."""
    return Place(point.line, point.workload, point.partition, point.sweep, point.at)


class Evidence:
    """What experiments have shown so far.

    All seeds of a place count, also where an experiment asks for fewer of them than another, so that a
    number is the same wherever it is shown.
    """

    def __init__(self, scale: Scale, results: Results) -> None:
        self.scale, self.results = scale, results
        self._seeds: Collection[int] | None = None  # None: all
        # What tables and figures share is worked out once.
        distinct = {experiment.grids: experiment for experiment in EXPERIMENTS.values()}
        shared = {grids: experiment.points(scale, results) for grids, experiment in distinct.items()}
        self.points = {name: shared[experiment.grids] for name, experiment in EXPERIMENTS.items()}
        self._runs: dict[Place, dict[int, Result]] = {}
        self._failed: dict[Place, dict[int, Result]] = {}
        self._wanted: set[Place] = set()
        for point in self.every_point():
            if not point.searching:
                self._take(point)

    def _take(self, point: Point) -> None:
        place = place_of(point)
        self._wanted.add(place)
        result = self.result(point)
        if result is None:
            return
        kept = self._failed if "failed" in result else self._runs
        kept.setdefault(place, {})[point.seed] = result

    def every_point(self) -> list[Point]:
        """Return the points of all experiments, each once."""
        every = [point for points in self.points.values() for point in points]
        return list({point.place: point for point in every}.values())

    def result(self, point: Point) -> Result | None:
        """Return what is stored of a point, failed or not; of a stand-in, nothing."""
        return self.results(point.run.key) if point.settled else None

    def runs(self, place: Place) -> Runs:
        """Return the runs of a place that finished, in the order of their seeds."""
        return self._selected(self._runs.get(place, {}))

    def paired(self, places: Iterable[Place]) -> Evidence:
        """Return the same with only those seeds that all of these places have which have any.

        What is compared within a figure then differs in nothing else.
        """
        every = [set(runs) for place in places if (runs := self.runs(place))]
        common = set.intersection(*every) if every else set()
        return self.restricted(common) if common else self

    def restricted(self, seeds: Collection[int]) -> Evidence:
        """Return the same with only these seeds."""
        view = copy(self)
        view._seeds = seeds
        return view

    def failed(self, place: Place) -> Runs:
        """Return the runs of a place that failed, with what is known of them until then."""
        return self._selected(self._failed.get(place, {}))

    def tried(self, place: Place) -> Runs:
        """Return the runs of a place that finished or failed."""
        return dict(sorted({**self.failed(place), **self.runs(place)}.items()))

    def _selected(self, runs: Runs) -> Runs:
        found = sorted(runs.items())
        return {seed: run for seed, run in found if self._seeds is None or seed in self._seeds}

    def wanted(self, place: Place) -> bool:
        """Say whether any experiment asks for a place at this scale."""
        return place in self._wanted

    def sweep(self, name: str) -> list[str]:
        """Return the points of one of the scale's sweeps, in order."""
        return list(self.scale.sweeps[name])

    def over_alpha(self, line: str, workload: str = "cifar10") -> dict[float, Place]:
        """Return the places of a line by alpha, the most even first; 0.1 is what non-IID means elsewhere."""
        swept = {float(at): Place(line, workload, sweep="alpha", at=at) for at in self.sweep("alpha")}
        return dict(sorted({**swept, 0.1: Place(line, workload)}.items(), reverse=True))
