"""Results that nobody trained, by rules a test can choose: as complete as stored ones, and never stored."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gapsl_reproduction.catalogue import EXPERIMENTS, find
from gapsl_reproduction.plan import Cell, planned, wanted
from gapsl_reproduction.report.frame import Evidence
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.scales import Scale
from gapsl_reproduction.store import SCHEMA, Result

EVALUATIONS, CLASSES = 10, 10
MADE = {
    "gapsl": "0.1.0", "commit": "0" * 40, "torch": "2.13.0", "python": "3.11.7", "processor": "a processor",
    "started": "2026-01-01T00:00:00+00:00", "device": "cpu",
}  # fmt: skip

Accuracy = Callable[[Cell], float | None]  # in percent; None: the run failed


class Made:
    """A store in memory, filled from the catalogue."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.results: dict[str, Result] = {}

    def get(self, key: str) -> Result | None:
        return self.results.get(key)

    def evidence(self) -> Evidence:
        return Evidence(self.scale, self.get)

    def fill(
        self,
        accuracy: Accuracy,
        *names: str,
        unless: Callable[[Cell], bool] = lambda cell: False,
        best: Callable[[RunSpec], bool] = lambda run: False,
    ) -> Made:
        """Make results of experiments, all by default: trials first, the first or a chosen one the best."""
        experiments = find(names) if names else list(EXPERIMENTS.values())
        for run in wanted(experiments, self.scale, self.get).runs:
            value = 0.5 - 0.01 * len(self.results) / 100 + 0.1 * best(run)
            self.results.setdefault(run.key, result_of(run, value))
        for each in planned(experiments, self.scale, self.get):
            value = accuracy(each.cell)
            if unless(each.cell):
                self.results.pop(each.run.key, None)
            else:
                self.results[each.run.key] = (
                    failure_of(each.run) if value is None else result_of(each.run, value / 100)
                )
        return self


def result_of(run: RunSpec, accuracy: float) -> dict[str, Any]:
    """Return a result with this accuracy, and everything else made up around it."""
    config = run.config
    devices, rounds = config.devices, config.rounds or 12
    chance = random.Random(run.key)
    each = [min(1.0, max(0.0, accuracy + (i - (devices - 1) / 2) * 0.01)) for i in range(devices)]
    measured = {
        "device_mean": accuracy,
        "device_std": 0.03,
        "device_min": min(each),
        "device_max": max(each),
        "ensemble": min(1.0, accuracy + (0.08 if config.method.startswith(("gapsl", "psl", "epsl")) else 0)),
        "merged": accuracy,
        "local": accuracy,
        "test_loss": 1.5,
        "device_accuracy": each,
        "class_accuracy": [accuracy] * CLASSES,
    }
    ends = [max(1, rounds * (i + 1) // EVALUATIONS) for i in range(EVALUATIONS)]
    sent = 1_000_000 * devices * (1.1 if config.method == "sfl" else 1) * (config.method != "central")
    received = 0 if config.method == "frozen" else sent
    spent = [
        {"bytes_sent": int(sent * end), "bytes_received": int(received * end), "seconds": 0.5 * end}
        for end in ends
    ]
    curve = [accuracy * (1 - 0.7 ** (i + 1)) / (1 - 0.7**EVALUATIONS) for i in range(EVALUATIONS)]
    return {
        **described(run),
        "rounds": rounds,
        "rounds_per_epoch": max(1, rounds // 20),
        "final": {
            **measured, "validation": measured, "converged_epoch": 3.0, **spent[-1],
            "weights_sha256": "0" * 64,
        },
        "history": [
            {
                "round": end, "epoch": end / max(1, rounds // 20), "split": "validation",
                "device_mean": curve[i] + chance.uniform(-0.01, 0.01), "ensemble": accuracy,
                "merged": accuracy, "local": accuracy, "test_loss": 2.0 - 0.1 * i, "device_accuracy": each,
                "drift": 0.1, **spent[i],
            }
            for i, end in enumerate(ends)
        ],
        "windows": [window(config.method, end, i, devices) for i, end in enumerate(ends)],
    }  # fmt: skip


def failure_of(run: RunSpec) -> dict[str, Any]:
    return {
        **described(run),
        "rounds": 7,
        "failed": "no device has a finite loss",
        "history": [],
        "windows": [],
    }


def described(run: RunSpec) -> dict[str, Any]:
    devices = range(run.config.devices)
    return {
        "schema": SCHEMA,
        "key": run.key,
        "config": dict(run.settings),
        "method": run.settings["method"],
        "seed": run.config.seed,
        "label_counts": [[100 * (c == i % CLASSES) for c in range(CLASSES)] for i in devices],
        "elapsed": 30.0,
        "made": dict(MADE),
    }  # fmt: skip


def window(method: str, end: int, index: int, devices: int) -> dict[str, Any]:
    """Return what is recorded up to an evaluation: later devices agree more."""
    entry: dict[str, Any] = {"round": end, "loss": 2.0 / (index + 1)}
    if method.startswith(("gapsl", "psl", "sfl", "epsl", "frozen")):
        entry |= {"angle_mean": 1.5, "dispersion": 0.1, "scores": [1.6 - 0.02 * i for i in range(devices)]}
    if method.startswith("gapsl"):
        shares = [(i + 1) / devices for i in range(devices)]
        entry |= {"ratio": 0.2 + 0.05 * index, "threshold": 1.4 - 0.02 * index, "kept": sum(shares)}
        entry |= {"kept_share": shares, "leader_share": shares}
    return entry
