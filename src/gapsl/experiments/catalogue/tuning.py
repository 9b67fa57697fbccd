"""The search of the learning rates: the same grid for every line, chosen on the validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gapsl.errors import InputError
from gapsl.experiments.catalogue.lines import LINES
from gapsl.experiments.catalogue.scales import Rates, Scale
from gapsl.experiments.planned import Planned, Settings, planned
from gapsl.experiments.store import Result

Results = Callable[[str], Result | None]  # by key

SEED = 0  # of the runs that the choice is made on


def search(scale: Scale, workload: str, line: str, partition: str) -> dict[Rates, Planned]:
    """Return the runs among which a line's rates for a partition are chosen, by rates; none: as set."""
    shared = LINES[LINES[line].rates_of]
    whole = scale.workloads[workload]
    tried = whole.rates
    if not shared.halves_learn:
        tried = tuple(rates for rates in tried if rates.device == tried[0].device)
    where = {"partition": searched_partition(partition, scale.searched_on), "seed": SEED}
    return {
        rates: planned(whole.settings, whole.search, shared.settings, where, at_rates(rates))
        for rates in tried
    }


def chosen(runs: Mapping[Rates, Planned], results: Results) -> Rates | None:
    """Return the rates with the best validation accuracy, the first of equals; None before all have ended.

    A run that failed is the worst; where all did, the smallest rates are what is left.
    """
    found: dict[Rates, float] = {}
    for rates, run in runs.items():
        result = results(run.key)
        if result is None:
            return None
        if "failed" not in result:
            found[rates] = result["final"]["validation"]["device_mean"]
    return max(found, key=lambda rates: found[rates]) if found else min(runs)


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
