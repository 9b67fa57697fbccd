"""All stored results of a scale in one frame, a row a cell of the catalogue; failed runs are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import degrees
from statistics import fmean
from typing import Any

import pandas as pd

from gapsl.analysis.looks import LOOKS
from gapsl.analysis.statistics import Values
from gapsl.device.faults import make_faults
from gapsl_reproduction.catalogue import EXPERIMENTS, LINES
from gapsl_reproduction.plan import Planned, Results, planned
from gapsl_reproduction.plan import trials as tuned
from gapsl_reproduction.report.numbers import minus
from gapsl_reproduction.scales import Scale
from gapsl_reproduction.store import Result

SKEWED = "alpha 0.1"  # what the paper calls non-IID
IID = "iid"
PAPER_RATES = "the paper's rates"
LONGER = "twice as long"
FEW_STEPS = "in large steps"
FEWER_SAMPLES = "three tenths of the rounds"
SHORTER_STEP = "three tenths of the step"
EXCLUDING = "gapsl with eta 0.5"  # the line of GAPSL that leaves most devices out
MEASURES = (
    "accuracy", "validation", "ensemble", "local", "worst", "honest", "converged",
    "sent", "received", "bytes", "seconds", "angle", "kept",
)  # fmt: skip
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
ABLATIONS = {"non-lgi": "Non-LGI", "rand-lgi": "Rand-LGI", "non-gda": "Non-GDA", "rand-gda": "Rand-GDA"}


def line_name(line: str) -> str:
    """Return a line's name in print, as every table and figure of the project has it."""
    first, space, rest = line.partition(" ")
    known = LOOKS[first].name if first in LOOKS else ABLATIONS.get(first, first)
    return f"{known}{space}{rest}"


@dataclass(frozen=True)
class Evidence:
    """What there is at a scale."""

    scale: Scale
    results: Results

    @cached_property
    def plan(self) -> Sequence[Planned]:
        """Every cell that any experiment asks for, what matters first."""
        return planned(EXPERIMENTS.values(), self.scale, self.results)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a cell: where it belongs, its state, and what was measured."""
        rows = [
            {
                "line": each.cell.line,
                "condition": each.cell.condition,
                "seed": each.cell.seed,
                "key": each.run.key,
                **measures(self._stored(each)),
            }
            for each in self.plan
        ]
        frame = pd.DataFrame(rows).set_index(["line", "condition", "seed"]).sort_index()
        return frame.reindex(columns=["key", "state", *MEASURES])

    def _stored(self, each: Planned) -> Result | None:
        """Return what is stored of a cell; of one whose rates are not chosen yet, nothing."""
        return self.results(each.run.key) if each.settled else None

    @cached_property
    def stored(self) -> Mapping[tuple[str, str], Mapping[int, Result]]:
        """Results, finished and failed, by line and condition, then by seed."""
        found: dict[tuple[str, str], dict[int, Result]] = {}
        for each in sorted(self.plan, key=lambda each: each.cell.seed):
            result = self._stored(each)
            if result is not None:
                found.setdefault((each.cell.line, each.cell.condition), {})[each.cell.seed] = result
        return found

    @property
    def count(self) -> int:
        """How many runs there are; one can fill several cells."""
        return int(self.frame.loc[self.frame["state"] != "missing", "key"].nunique())

    @property
    def total(self) -> int:
        """How many runs there would be, were all cells filled."""
        return int(self.frame["key"].nunique())

    @cached_property
    def trials(self) -> Mapping[str, Result]:
        """Results of the trials among which learning rates were chosen, by key."""
        every = (tuned(workload, line) for workload in self.scale.workloads.values() for line in LINES)
        keys = {run.key for found in every for run in found.values()}
        return {key: result for key in sorted(keys) if (result := self.results(key)) is not None}

    def best_trials(self, line: str, workload: str = "cifar10", *, by: str) -> dict[Any, float]:
        """Return a line's best trials by their `rates` or their `choice`, in % on the validation split."""
        found: dict[Any, float] = {}
        for candidate, run in tuned(self.scale.workloads[workload], line).items():
            result = self.results(run.key)
            if result is not None and "failed" not in result:
                value = 100 * result["final"]["validation"]["device_mean"]
                at = getattr(candidate, by)
                found[at] = max(found.get(at, 0.0), value)
        return found

    def runs(self, line: str, condition: str = SKEWED) -> Mapping[int, Result]:
        """Return finished runs by seed."""
        own = self.stored.get((line, condition), {})
        return {seed: result for seed, result in own.items() if "failed" not in result}

    def values(
        self,
        line: str,
        condition: str = SKEWED,
        measure: str = "accuracy",
        *,
        failed: float | None = None,
    ) -> Values:
        """Return a measure by seed; runs that failed have the value given, or are left out."""
        if line == "central" and condition == IID:
            condition = SKEWED  # all data is in one place, whoever had it before
        if (line, condition) not in self.stored:
            return {}
        column = self.frame.loc[(line, condition)]
        known = column.loc[column["state"] != "missing", measure]
        found = known if failed is None else known.fillna(failed)
        return {int(seed): float(value) for seed, value in found.dropna().items()}

    def lead(self, first: str, second: str, condition: str = SKEWED, measure: str = "accuracy") -> Values:
        """Return how far one line is above another, by seed."""
        return minus(*(self.values(line, condition, measure) for line in (first, second)))

    @property
    def guessing(self) -> float:
        """The accuracy of guessing on CIFAR-10, where faulty devices are tried."""
        runs = next(iter(self.stored.values()), {})
        return next((100 / len(run["label_counts"][0]) for run in runs.values()), 0.0)

    def conditions(self, group: str) -> list[str]:
        """Return the names of a group's conditions at this scale."""
        return list(self.scale.groups.get(group, {}))


def measures(result: Result | None) -> dict[str, Any]:
    """Return what a row of the frame says of a run: accuracies in percent, angles in degrees, MB."""
    if result is None:
        return {"state": "missing"}
    if "failed" in result:
        return {"state": "failed"}
    final = result["final"]
    angle = over_rounds(result, "angle_mean")
    return {
        "state": "done",
        "accuracy": 100 * final["device_mean"],
        "validation": 100 * final["validation"]["device_mean"] if "validation" in final else None,
        "ensemble": 100 * final["ensemble"],
        "local": 100 * final["local"],
        "worst": 100 * final["device_min"],
        "honest": honest_accuracy(result, faulty_devices(result)),
        "converged": final["converged_epoch"],
        "sent": final["bytes_sent"] / 1e6,
        "received": final["bytes_received"] / 1e6,
        "bytes": (final["bytes_sent"] + final["bytes_received"]) / 1e6,
        "seconds": final["seconds"],
        "angle": None if angle is None else degrees(angle),
        "kept": over_rounds(result, "kept"),
    }


def over_rounds(result: Result, name: str) -> float | None:
    """Return the mean of a recorded number over all rounds, None where the method has no such number."""
    return _weighted(result, lambda window: window.get(name))


def over_devices(result: Result, name: str) -> list[float | None]:
    """Return the mean of a recorded list over all rounds, a number a device; empty where there is none."""
    devices = max((len(window.get(name, ())) for window in result["windows"]), default=0)
    return [
        _weighted(result, lambda window, id=id: window[name][id] if name in window else None)
        for id in range(devices)
    ]


def _weighted(result: Result, number: Any) -> float | None:
    """Return a mean over the windows, each counted as the rounds it stands for."""
    total, weight, before = 0.0, 0, 0
    for window in result["windows"]:
        value, rounds, before = number(window), window["round"] - before, window["round"]
        if value is not None:
            total, weight = total + rounds * value, weight + rounds
    return total / weight if weight else None


def faulty_devices(result: Result) -> tuple[int, ...]:
    """Return the devices that misbehave on purpose."""
    spec = result["config"].get("faults", "none")
    faults = make_faults(spec, devices=len(result["label_counts"]), seed=result["seed"])
    return () if faults is None else faults.devices


def honest_accuracy(result: Result, faulty: Sequence[int]) -> float | None:
    """Return the mean accuracy of all devices but the faulty ones."""
    accuracies = enumerate(result["final"]["device_accuracy"])
    kept = [own for id, own in accuracies if id not in faulty and own is not None]
    return 100 * fmean(kept) if kept else None
