"""Evidence made by hand: a healthy run, and ways to make it ill."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gapsl.analysis.diagnosis import Evaluation, Evidence, Finding, Labels, Round

DEVICES, CLASSES, ROUNDS, EVERY = 4, 4, 40, 5
EVEN = [[25] * CLASSES] * DEVICES
ONE_CLASS_EACH = (97 * np.eye(4, dtype=int) + 1).tolist()

SETTINGS: dict[str, Any] = {
    "method": "psl",
    "seed": 0,
    "dataset": "digits",
    "model": "mlp",
    "devices": DEVICES,
    "partition": "iid",
    "participation": 1.0,
    "batch_size": 32,
    "norm": "none",
    "reduction": "mean",
    "device_gradient": "follow",
    "calibration": "none",
    "calibration_for": "both",
    "balance": "none",
    "probes": 0,
    "probe_pull": 0.03,
    "probe_leaders": 1.0,
    "device_optimizer": {"name": "sgd", "lr": 0.1, "clip": None, "schedule": "constant"},
    "server_optimizer": {"lr": 0.1, "clip": None, "schedule": "constant"},
}
GAPSL = {
    "eta": 0.5,
    "lambda": 5e-4,
    "penalty": "exact",
    "exclusion": "adaptive",
    "excluded": "skip",
}


def evaluation(round: int, accuracy: float = 0.9) -> Evaluation:
    """An evaluation in which the devices differ by a point."""
    each = tuple(accuracy + step for step in (-0.005, 0.0, 0.0, 0.005))
    return Evaluation(
        round=round,
        split="test",
        device_mean=accuracy,
        ensemble=accuracy + 0.02,
        merged=accuracy + 0.01,
        local=accuracy,
        device_accuracy=each,
        class_accuracy=(accuracy,) * CLASSES,
        drift=dict.fromkeys(range(DEVICES), 0.3),
    )


def healthy_round(number: int) -> Round:
    """A round of a run whose loss falls to a twentieth, and whose accuracy is at its best after a third."""
    loss = 2.0 * math.exp(-3 * number / ROUNDS)
    accuracy = min(0.9, 0.25 + 0.06 * number)
    return Round(
        number=number,
        epoch=number / 10,
        loss=loss,
        losses=dict.fromkeys(range(DEVICES), loss),
        skipped=frozenset(),
        norms=dict.fromkeys(range(DEVICES), 0.5 * loss),
        kept=None,
        scores=dict.fromkeys(range(DEVICES), math.radians(60)),
        dispersion=None,
        angle=math.radians(60),
        averaged=False,
        seconds={"collect": 0.2, "server": 0.5, "deliver": 0.2, "move": 0.0, "evaluate": 0.1},
        sent=1000,
        received=900,
        evaluation=evaluation(number, accuracy) if number % EVERY == 0 else None,
    )


def healthy(counts: Sequence[Sequence[int]] = EVEN, **settings: Any) -> Evidence:
    """A finished run with nothing to complain about."""
    return Evidence(
        settings={**SETTINGS, **settings},
        rounds=tuple(healthy_round(number) for number in range(1, ROUNDS + 1)),
        total_rounds=ROUNDS,
        finished=True,
        labels=Labels(np.array(counts), ("ant", "bee", "cat", "dog")),
    )


def aligned(kept: Callable[[int], set[int]], counts: Sequence[Sequence[int]] = EVEN) -> Evidence:
    """A run of GAPSL that keeps these devices, by round."""
    run = healthy(counts, method="gapsl", gapsl=GAPSL)
    return changed(run, lambda r: {"kept": frozenset(kept(r.number)), "dispersion": 0.05})


def changed(run: Evidence, change: Callable[[Round], dict[str, Any]]) -> Evidence:
    """The same run with something else in its rounds."""
    return replace(run, rounds=tuple(replace(round, **change(round)) for round in run.rounds))


def evaluated(run: Evidence, change: Callable[[Evaluation], dict[str, Any]]) -> Evidence:
    """The same run with something else in its evaluations."""
    return changed(
        run, lambda r: {"evaluation": r.evaluation and replace(r.evaluation, **change(r.evaluation))}
    )


def with_accuracy(run: Evidence, accuracies: Sequence[float]) -> Evidence:
    """The same run with these accuracies, one an evaluation."""
    return changed(
        run,
        lambda r: (
            {"evaluation": evaluation(r.number, accuracies[r.number // EVERY - 1])} if r.evaluation else {}
        ),
    )


def probed(run: Evidence, apart: float, odd: float = 2.0, **settings: Any) -> Evidence:
    """The same run with probes, halves this far apart, and the last device at this angle in degrees."""
    scores = {0: 2.0, 1: 2.0, 2: 2.0, 3: odd}
    run = changed(
        run,
        lambda r: {"apart": apart, "probe_scores": {d: math.radians(s) for d, s in scores.items()}},
    )
    return replace(run, settings={**run.settings, "probes": 2, **settings})


def settings_of(finding: Finding | None) -> list[str]:
    """What a finding advises, by name."""
    assert finding is not None
    return [advice.name for advice in finding.advice]
