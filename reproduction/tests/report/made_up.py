"""Results that nobody trained, by rules a test can choose: as small as stored ones, and as complete."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gapsl_reproduction.catalogue import EXPERIMENTS, LINES, Point, Scale
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.store import SCHEMA, Result

EVALUATIONS = 6
ANGLED = ("gapsl", "psl", "sfl", "epsl", "frozen")

CLASSES = 10
MADE = {
    "gapsl": "0.1.0",
    "commit": "0" * 40,
    "torch": "2.13.0",
    "python": "3.11.7",
    "processor": "a processor",
    "started": "2026-01-01T00:00:00+00:00",
    "device": "cpu",
}

Accuracy = Callable[[Point], float]  # a share, not percent


class Made:
    """A store in memory, filled from the catalogue."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.results: dict[str, Result] = {}
        self.filled: list[str] = []  # experiments that there are results of

    def get(self, key: str) -> Result | None:
        return self.results.get(key)

    def evidence(self) -> Evidence:
        return Evidence(self.scale, self.get)

    def points(self, *names: str) -> list[Point]:
        """Return the points of experiments, searches first, each with the rates that are chosen."""
        return [p for name in names or EXPERIMENTS for p in EXPERIMENTS[name].points(self.scale, self.get)]

    def fill(self, accuracy: Accuracy, *names: str, **more: Any) -> Made:
        """Make results for experiments, all of them by default; a run of several lines is its first's.

        The best trial of a search also wins at full length. That run is often one that is shown, and then it
        has the accuracy of what is shown.
        """
        self.filled += names or EXPERIMENTS
        for point in self.points(*names):
            if point.searching and not point.final:
                self._put(point, accuracy(searched(point)), **more)
        searches: set[tuple[str, ...]] = set()
        finals: set[str] = set()
        for point in self.points(*names):
            if point.final:
                search = (point.workload, point.partition, searched(point).line)
                if point.run.key not in self.results:
                    finals.add(point.run.key)
                self._put(point, accuracy(searched(point)) if search not in searches else 0.0, **more)
                searches.add(search)
        for point in self.points(*names):
            if not point.searching:
                if point.run.key in finals:
                    finals.remove(point.run.key)
                    del self.results[point.run.key]
                self._put(point, accuracy(point), **more)
        return self

    def _put(self, point: Point, accuracy: float, **more: Any) -> None:
        if point.run.key not in self.results:
            self.results[point.run.key] = result_of(point, accuracy, **more)

    def drop(self, unwanted: Callable[[Point], bool]) -> Made:
        """Take results away."""
        for point in self.points():
            if not point.searching and unwanted(point):
                self.results.pop(point.run.key, None)
        return self


def searched(point: Point) -> Point:
    """Return a point of a search as that of the line whose rates are searched."""
    return replace(point, line=LINES[point.line].rates_of)


def result_of(point: Point, accuracy: float, *, epochs: float = 3.0, **final: Any) -> dict[str, Any]:
    """Return a result with this accuracy, and everything else made up around it."""
    config = point.run.config
    devices, rounds = config.devices, config.rounds or 12
    random_ = random.Random(f"{point.run.key}")
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
    ends = [rounds * (i + 1) // EVALUATIONS for i in range(EVALUATIONS)]
    sent = 1000 * devices * (1 + 0.1 * (config.method == "sfl")) * (config.method != "central")
    return {
        "schema": SCHEMA,
        "key": point.run.key,
        "config": dict(point.run.settings),
        "method": point.run.settings["method"],
        "seed": config.seed,
        "rounds": rounds,
        "rounds_per_epoch": 10,
        "final": {
            **measured,
            "converged_epoch": epochs,
            "bytes_sent": int(sent * rounds),
            "bytes_received": int(sent * rounds),
            "seconds": 2.0 * rounds,
            "weights_sha256": "0" * 64,
            "validation": measured,
            **final,
        },
        "history": [
            {
                "round": end,
                "epoch": end / 10,
                "split": "validation",
                "device_mean": accuracy * (1 - 0.7 ** (i + 1)) + random_.uniform(-0.01, 0.01),
                "ensemble": accuracy,
                "merged": accuracy,
                "local": accuracy,
                "test_loss": 2.0 - 0.1 * i,
                "device_accuracy": each,
                "drift": 0.1,
                "bytes_sent": int(sent * end),
                "bytes_received": int(sent * end),
                "seconds": 2.0 * end,
            }
            for i, end in enumerate(ends)
        ],
        "windows": [
            window(config.method, end, i, devices, probed=config.probes > 0) for i, end in enumerate(ends)
        ],
        "label_counts": [labels_of(i) for i in range(devices)],
        "elapsed": 3.0 * rounds,
        "made": dict(MADE),
    }


def labels_of(device: int) -> list[int]:
    """Return a device's samples by class: it has two of them."""
    return [100 * (c in (device % CLASSES, (device + 1) % CLASSES)) for c in range(CLASSES)]


def window(method: str, end: int, index: int, devices: int, *, probed: bool) -> dict[str, Any]:
    """Return what is recorded up to an evaluation: later devices agree more."""
    entry: dict[str, Any] = {"round": end, "loss": 2.0 / (index + 1)}
    if method.startswith(ANGLED):
        scores = [1.6 - 0.02 * i for i in range(devices)]
        entry |= {"angle_mean": 1.5, "dispersion": 0.1, "scores": scores}
    if method.startswith("gapsl"):
        shares = [(i + 1) / devices for i in range(devices)]
        entry |= {"ratio": 0.2 + 0.1 * index, "threshold": 1.4, "kept": sum(shares)}
        entry |= {"kept_share": shares, "leader_share": shares}
    if probed:
        entry |= {"apart": 0.01, "probe_scores": [0.8 - 0.01 * i for i in range(devices)]}
    return entry
