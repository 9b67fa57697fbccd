"""The search of the device learning rate: the same grid for every line, chosen on the validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gapsl.errors import InputError
from gapsl.experiments.catalogue.lines import LINES
from gapsl.experiments.catalogue.scales import Scale
from gapsl.experiments.planned import Planned, Settings, planned
from gapsl.experiments.store import Result

Results = Callable[[str], Result | None]  # by key

SEED = 0  # of the runs that the choice is made on


def search(scale: Scale, workload: str, line: str, partition: str) -> dict[float, Planned]:
    """Return the runs among which a line's rate for a partition is chosen, by rate; none: as it is set."""
    shared = LINES[line].rates_of
    if shared is None:
        return {}
    whole = scale.workloads[workload]
    where = {"partition": searched_partition(partition, scale.searched_on), "seed": SEED}
    return {
        rate: planned(whole.settings, LINES[shared].settings, where, at_rate(rate)) for rate in whole.rates
    }


def chosen(runs: Mapping[float, Planned], results: Results) -> float | None:
    """Return the rate with the best validation accuracy, the first of equals; None before all have ended.

    A run that failed is the worst; where all did, the smallest rate is what is left.
    """
    found: dict[float, float] = {}
    for rate, run in runs.items():
        result = results(run.key)
        if result is None:
            return None
        if "failed" not in result:
            found[rate] = result["final"]["validation"]["device_mean"]
    return max(found, key=lambda rate: found[rate]) if found else min(runs)


def at_rate(rate: float) -> Settings:
    """Return the settings of a device learning rate."""
    return {"device_optimizer": {"lr": rate}}


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
