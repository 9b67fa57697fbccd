"""The search of the learning rates: the same grid for every line, chosen on the validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from gapsl.common.errors import InputError
from gapsl_reproduction.catalogue.lines import LINES
from gapsl_reproduction.catalogue.scales import Rates, Scale, Workload
from gapsl_reproduction.planned import Planned, Settings, planned
from gapsl_reproduction.store import Result

Results = Callable[[str], Result | None]  # by key

SEED = 0  # of the runs that the choice is made on
FINALISTS = 2  # trials that are run again at full length


@dataclass(frozen=True)
class Search:
    """The runs among which a line's rates for a partition are chosen, by rates; none: as set.

    Short trials rank all pairs; the best of them run at full length, and the best of those is taken: what
    learns fastest at first is not always what learns most.
    """

    trials: Mapping[Rates, Planned]
    full: Mapping[Rates, Planned]

    def finalists(self, results: Results) -> dict[Rates, Planned]:
        """Return the full-length runs of the best trials; none before all trials have ended."""
        order = ranked(self.trials, results) or []
        return {rates: self.full[rates] for rates in order[:FINALISTS]}

    def chosen(self, results: Results) -> Rates | None:
        """Return the rates of the best finalist; None before all of them have ended."""
        order = ranked(self.finalists(results), results)
        return order[0] if order else None


def search(scale: Scale, workload: str, line: str, partition: str) -> Search:
    """Return the search of a line's rates for a partition."""
    searched = searched_partition(partition, scale.searched_on)
    return _search(scale.workloads[workload], LINES[line].rates_of, searched)


@cache  # lines, sweeps and experiments share searches, and each is many runs to lay out
def _search(workload: Workload, line: str, partition: str) -> Search:
    tried = workload.rates
    if not LINES[line].halves_learn:
        tried = tuple(rates for rates in tried if rates.device == tried[0].device)
    where = {"partition": partition, "seed": SEED}

    def runs(length: Settings) -> dict[Rates, Planned]:
        layers = (workload.settings, length, LINES[line].settings, where)
        return {rates: planned(*layers, at_rates(rates)) for rates in tried}

    return Search(runs(workload.search), runs({}))


def ranked(runs: Mapping[Rates, Planned], results: Results) -> list[Rates] | None:
    """Return rates by validation accuracy, the best first, the first of equals; None before all have ended.

    A run that failed is among the worst, and of those the smallest rates are the best.
    """
    found: dict[Rates, float] = {}
    failed: list[Rates] = []
    for rates, run in runs.items():
        result = results(run.key)
        if result is None:
            return None
        if "failed" in result:
            failed.append(rates)
        else:
            found[rates] = result["final"]["validation"]["device_mean"]
    return sorted(found, key=lambda rates: -found[rates]) + sorted(failed)


def at_rates(rates: Rates) -> Settings:
    """Return the settings of learning rates."""
    return {"device_optimizer": {"lr": rates.device}, "server_optimizer": {"lr": rates.server}}


def searched_partition(partition: str, known: tuple[str, ...]) -> str:
    """Return the partition whose search serves a partition: the one whose labels are most alike."""
    return min(known, key=lambda other: abs(evenness(other) - evenness(partition)))


def evenness(partition: str) -> float:
    """Return how alike the devices' labels are: 1 for iid, towards 0 the smaller alpha is."""
    name, _, argument = partition.partition("+")[0].partition(":")
    if name == "iid":
        return 1.0
    if name != "dirichlet":
        raise InputError(f"experiments divide data by iid or dirichlet:ALPHA, not {partition}")
    alpha = float(argument.partition(",")[0])
    return alpha / (1 + alpha)
