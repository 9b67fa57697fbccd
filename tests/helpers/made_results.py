"""Results of runs made by hand, for tables and pictures."""

from __future__ import annotations

from typing import Any

from gapsl.run.config import make_config, merge
from gapsl.run.records import Evaluation, FinalEvaluation, RunResult

CLASSES = ("ant", "bee", "cat")


def evaluation(round: int, accuracy: float, **others: Any) -> dict[str, Any]:
    """The fields of an evaluation of two devices, two points apart."""
    measured: dict[str, Any] = {
        "round": round,
        "epoch": round / 10,
        "split": "test",
        "device_mean": accuracy,
        "device_std": 0.01,
        "device_min": accuracy - 0.01,
        "device_max": accuracy + 0.01,
        "ensemble": accuracy + 0.1,
        "merged": accuracy,
        "local": accuracy,
        "device_accuracy": {0: accuracy - 0.01, 1: accuracy + 0.01},
        "class_accuracy": (accuracy, accuracy, None),
        "bytes_sent": {0: 10**6, 1: 10**6},
        "bytes_received": {0: 10**6, 1: 2 * 10**6},
        "seconds": 7.0,
    }
    return {**measured, **others}


def result(method: str, seed: int, accuracy: float, rounds: int = 40, **settings: Any) -> RunResult:
    """A finished run with evaluations every ten rounds that ends at this accuracy."""
    values = {"method": method, "seed": seed, "rounds": rounds, "devices": 2}
    config = make_config(merge(values, settings)).resolved()
    marks = range(10, rounds + 1, 10)
    last = evaluation(rounds, accuracy, confusion=((8, 2, 0), (1, 9, 0), (0, 0, 0)))
    return RunResult(
        method=method,
        label=settings.get("label"),
        seed=seed,
        rounds=rounds,
        rounds_per_epoch=10,
        classes=CLASSES,
        config=config,
        final=FinalEvaluation(**last, weights_sha256=f"{method}{seed}"),
        history=tuple(Evaluation(**evaluation(mark, accuracy * mark / rounds)) for mark in marks),
    )
