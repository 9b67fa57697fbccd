"""From experiments to runs: which cells they have, the search of learning rates, and what fills them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

from gapsl.run.config import merge
from gapsl_reproduction.catalogue import LINES, Experiment
from gapsl_reproduction.runs import RunSpec, Settings, Wanted, run_spec
from gapsl_reproduction.scales import Condition, Rates, Scale, Workload
from gapsl_reproduction.store import Result

Results = Callable[[str], Result | None]  # by key

SEED = 0  # of the trials


@dataclass(frozen=True)
class Candidate:
    """What a trial tries: a pair of learning rates, and one of a line's own choices."""

    rates: Rates
    choice: int = 0  # its place among the line's choices

    def over(self, line: str, *, with_rates: bool = True) -> Settings:
        """Return a line's settings with what was chosen; what the line itself sets is not a choice."""
        found = LINES[line]
        choice = LINES[found.tuned_as or line].choices[self.choice]
        rates = {"device_optimizer": {"lr": self.rates.device}, "server_optimizer": {"lr": self.rates.server}}
        return merge(choice, found.settings, rates if with_rates else {})


def trials(workload: Workload, line: str) -> Mapping[Candidate, RunSpec]:
    """Return the short runs among which a line's candidate is chosen; none where rates are given."""
    return _trials(workload, LINES[line].tuned_as or line)


@cache  # lines and experiments share trials
def _trials(workload: Workload, line: str) -> Mapping[Candidate, RunSpec]:
    found = LINES[line]
    rates = workload.rates + (workload.lower if found.lower else ())
    if not found.clients_learn:  # one trial for each of the server's rates
        rates = tuple({pair.server: pair for pair in rates}.values())
    tried = [Candidate(*each) for each in product(rates, range(len(found.choices)))]
    layers = (workload.settings, workload.trial, {"seed": SEED})
    return {candidate: run_spec(*layers, candidate.over(line)) for candidate in tried}


def ranked(runs: Mapping[Candidate, RunSpec], results: Results) -> list[Candidate] | None:
    """Return candidates by validation accuracy, the best first; None before all trials have ended.

    A trial that failed is among the worst, and of those the smallest rates are the best.
    """
    found: dict[Candidate, float] = {}
    failed: list[Candidate] = []
    for candidate, run in runs.items():
        result = results(run.key)
        if result is None:
            return None
        if "failed" in result:
            failed.append(candidate)
        else:
            found[candidate] = result["final"]["validation"]["device_mean"]
    return sorted(found, key=lambda each: -found[each]) + sorted(failed, key=lambda each: each.rates)


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
    if workload.rates and (condition.tuned or len(LINES[cell.line].choices) > 1):
        order = ranked(trials(workload, cell.line), results)
        settled = order is not None
        chosen = order[0] if order else next(iter(trials(workload, cell.line)))
        line = chosen.over(cell.line, with_rates=condition.tuned)
    run = run_spec(workload.settings, line, condition.settings, workload.fixed, {"seed": cell.seed})
    return Planned(cell, run, condition.workload, priority, chosen, settled)


def wanted(experiments: Iterable[Experiment], scale: Scale, results: Results) -> Wanted:
    """Return the runs that experiments want: what matters most, each after its trials, seed by seed."""
    runs: dict[str, RunSpec] = {}
    open_: dict[str, RunSpec] = {}
    for each in planned(experiments, scale, results):
        if each.chosen is not None:
            tried = trials(scale.workloads[each.workload], each.cell.line)
            runs |= {run.key: run for run in tried.values() if run.key not in runs}
        (runs if each.settled else open_).setdefault(each.run.key, each.run)
    return Wanted(list(runs.values()), [run for key, run in open_.items() if key not in runs])
