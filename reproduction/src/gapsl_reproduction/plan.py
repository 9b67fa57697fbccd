"""From experiments to runs: which cells they have, and which runs fill them as far as rates are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gapsl_reproduction.catalogue import LINES, Experiment
from gapsl_reproduction.runs import RunSpec, Wanted, run_spec
from gapsl_reproduction.scales import Condition, Scale
from gapsl_reproduction.tuning import Candidate, Results, ranked, trials


@dataclass(frozen=True)
class Cell:
    """Where a number belongs, whichever experiment shows it."""

    line: str
    condition: str
    seed: int


@dataclass(frozen=True)
class Planned:
    """A cell with the run that fills it."""

    cell: Cell
    run: RunSpec
    workload: str
    priority: int
    chosen: Candidate | None = None  # what its trials chose
    settled: bool = True  # False: they have not, and the run is a stand-in


def planned(experiments: Iterable[Experiment], scale: Scale, results: Results) -> list[Planned]:
    """Return the runs of experiments, each cell once, what matters first."""
    found: dict[Cell, Planned] = {}
    for experiment in experiments:
        for block in experiment.blocks:
            for group in block.groups:
                for name, condition in scale.groups.get(group, {}).items():
                    for line in block.lines:
                        for seed in range(scale.seeds[block.seeds]):
                            cell = Cell(line, name, seed)
                            if cell not in found or found[cell].priority > block.priority:
                                found[cell] = _fill(cell, condition, block.priority, scale, results)
    return sorted(found.values(), key=lambda each: (each.priority, each.cell.seed))


def _fill(cell: Cell, condition: Condition, priority: int, scale: Scale, results: Results) -> Planned:
    workload = scale.workloads[condition.workload]
    line, chosen, settled = LINES[cell.line].settings, None, True
    if workload.rates and condition.tuned:
        order = ranked(trials(workload, cell.line), results)
        settled = order is not None
        chosen = order[0] if order else next(iter(trials(workload, cell.line)))
        line = chosen.over(cell.line)
    run = run_spec(workload.settings, line, condition.settings, workload.fixed, {"seed": cell.seed})
    return Planned(cell, run, condition.workload, priority, chosen, settled)


def wanted(experiments: Iterable[Experiment], scale: Scale, results: Results) -> Wanted:
    """Return the runs that experiments want: trials first, then what matters most, seed by seed."""
    every = planned(experiments, scale, results)
    runs = {run.key: run for run in _all_trials(every, scale)}
    runs |= {each.run.key: each.run for each in every if each.settled}
    waiting = {each.run.key: each.run for each in every if not each.settled and each.run.key not in runs}
    return Wanted(list(runs.values()), list(waiting.values()))


def _all_trials(every: Iterable[Planned], scale: Scale) -> Iterator[RunSpec]:
    """Yield the trials that these depend on, in their order."""
    for each in every:
        if each.chosen is not None:
            yield from trials(scale.workloads[each.workload], each.cell.line).values()
