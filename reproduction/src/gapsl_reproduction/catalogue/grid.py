"""Blocks of runs: every line in every condition, and what each point of it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gapsl.run.config import merge
from gapsl_reproduction.catalogue.lines import LINES
from gapsl_reproduction.catalogue.scales import Rates, Scale
from gapsl_reproduction.catalogue.sweeps import PARTITIONS
from gapsl_reproduction.catalogue.tuning import Results, at_rates, search
from gapsl_reproduction.planned import Planned, Settings, planned

# What comes first when time is short.
CORE, GOAL, STUDY, SWEEPS, REST = range(5)


@dataclass(frozen=True)
class Grid:
    """Lines × workloads × partitions × points of a sweep × seeds."""

    lines: tuple[str, ...]
    workloads: tuple[str, ...] = ("cifar10",)
    partitions: tuple[str, ...] = ("non-iid",)
    sweep: str | None = None  # one of the scale's, laid over line and partition
    at: tuple[str, ...] | None = None  # these points of it alone, as far as the scale has them
    seeds: str = "rest"  # which of the scale's numbers of seeds
    priority: int = REST


@dataclass(frozen=True)
class Point:
    """One run of an experiment, with its place in it."""

    workload: str
    partition: str  # iid or non-iid, or that of a search
    line: str
    at: str | None  # the point of the sweep
    seed: int
    run: Planned
    priority: int
    sweep: str | None = None  # which sweep `at` is a point of
    rates: Rates | None = None  # the learning rates that were chosen, or are tried here
    searching: bool = False  # made to choose a rate, not to be shown
    final: bool = False  # one of the best of those, at full length
    settled: bool = True  # False: a rate is not chosen yet, and the run is a stand-in

    @property
    def place(self) -> tuple[object, ...]:
        """What tells it from the other points of an experiment."""
        tried = self.rates if self.searching else None
        own = (self.workload, self.partition, self.line, self.sweep, self.at, self.seed)
        return (*own, tried, self.final)


def points(grid: Grid, scale: Scale, results: Results) -> Iterator[Point]:
    """Yield the points of a grid, after the searches they depend on."""
    for workload in grid.workloads:
        whole = scale.workloads[workload]
        priority = REST if whole.last else grid.priority
        count = scale.seeds[grid.seeds]
        seeds = range(count if whole.most_seeds is None else min(count, whole.most_seeds))
        sweep: list[tuple[str | None, Settings]] = [(None, {})]
        if grid.sweep is not None:
            every = scale.sweeps[grid.sweep].items()
            sweep = [(at, varied) for at, varied in every if grid.at is None or at in grid.at]
        for partition in grid.partitions:
            for line in grid.lines:
                for at, varied in sweep:
                    own = LINES[line].settings
                    settings = merge(whole.settings, PARTITIONS[partition], own, varied, whole.fixed)
                    place = (workload, partition, line, grid.sweep, at)
                    yield from tuned(place, settings, seeds, priority, scale, results)


def tuned(
    place: tuple[str, str, str, str | None, str | None],
    settings: Settings,
    seeds: range,
    priority: int,
    scale: Scale,
    results: Results,
) -> Iterator[Point]:
    """Yield the search of a line's learning rates, then its runs, stand-ins while it is open."""
    workload, partition, line, sweep, at = place
    found: Rates | None = None
    settled = True
    if scale.workloads[workload].rates:
        searched = search(scale, workload, line, settings["partition"])
        yield from (trial(workload, line, *each, priority) for each in searched.trials.items())
        finalists = searched.finalists(results)
        yield from (trial(workload, line, *each, priority, final=True) for each in finalists.items())
        found = searched.chosen(results)
        settled = found is not None
        found = found or next(iter(searched.trials))
    overlay = {} if found is None else at_rates(found)
    for seed in seeds:
        run = planned(settings, overlay, {"seed": seed})
        yield Point(workload, partition, line, at, seed, run, priority, sweep, found, settled=settled)


def trial(
    workload: str, line: str, rates: Rates, run: Planned, priority: int, *, final: bool = False
) -> Point:
    """Return a run that is made to choose rates."""
    where, seed = run.config.partition, run.config.seed
    return Point(workload, where, line, None, seed, run, priority, rates=rates, searching=True, final=final)
