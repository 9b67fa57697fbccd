"""Runs made by hand: a healthy one, and ways to make it ill."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gapsl.analysis.diagnose import Finding, Labels, Run
from gapsl.device.exchange import Selection
from gapsl.run.records import Evaluation, RoundRecord

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
    "probe_steps": 0,
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
    nothing = dict.fromkeys(range(DEVICES), 0)
    return Evaluation(
        round=round,
        epoch=round / 10,
        split="test",
        device_mean=accuracy,
        device_std=0.004,
        device_min=accuracy - 0.005,
        device_max=accuracy + 0.005,
        ensemble=accuracy + 0.02,
        merged=accuracy + 0.01,
        local=accuracy,
        device_accuracy={d: accuracy + step for d, step in enumerate((-0.005, 0.0, 0.0, 0.005))},
        class_accuracy=(accuracy,) * CLASSES,
        drift=dict.fromkeys(range(DEVICES), 0.3),
        bytes_sent=nothing,
        bytes_received=nothing,
        seconds=1.0,
    )


def healthy_record(round: int) -> RoundRecord:
    """A round of a run whose loss falls to a twentieth, and whose accuracy is at its best after a third."""
    loss = 2.0 * math.exp(-3 * round / ROUNDS)
    accuracy = min(0.9, 0.25 + 0.06 * round)
    return RoundRecord(
        round=round,
        epoch=round / 10,
        loss=loss,
        losses=dict.fromkeys(range(DEVICES), loss),
        norms=dict.fromkeys(range(DEVICES), 0.5 * loss),
        angle_mean=math.radians(60),
        seconds={"collect": 0.2, "server": 0.5, "deliver": 0.2, "move": 0.0, "evaluate": 0.1},
        bytes_sent=dict.fromkeys(range(DEVICES), 250),
        bytes_received=dict.fromkeys(range(DEVICES), 225),
        evaluation=evaluation(round, accuracy) if round % EVERY == 0 else None,
    )


def healthy(counts: Sequence[Sequence[int]] = EVEN, **settings: Any) -> Run:
    """A finished run with nothing to complain about."""
    return Run(
        settings={**SETTINGS, **settings},
        records=tuple(healthy_record(round) for round in range(1, ROUNDS + 1)),
        total_rounds=ROUNDS,
        finished=True,
        labels=Labels(np.array(counts), ("ant", "bee", "cat", "dog")),
    )


def aligned(kept: Callable[[int], set[int]], counts: Sequence[Sequence[int]] = EVEN) -> Run:
    """A run of GAPSL that keeps these devices, by round."""
    run = healthy(counts, method="gapsl", gapsl=GAPSL)
    return changed(
        run,
        lambda r: {"selection": Selection(leader=(0,), kept=tuple(kept(r.round)), scores={}, lead_angles={})},
    )


def changed(run: Run, change: Callable[[RoundRecord], dict[str, Any]]) -> Run:
    """The same run with something else in its records."""
    return replace(run, records=tuple(replace(record, **change(record)) for record in run.records))


def evaluated(run: Run, change: Callable[[Evaluation], dict[str, Any]]) -> Run:
    """The same run with something else in its evaluations."""
    return changed(
        run, lambda r: {"evaluation": r.evaluation and replace(r.evaluation, **change(r.evaluation))}
    )


def with_accuracy(run: Run, accuracies: Sequence[float]) -> Run:
    """The same run with these accuracies, one an evaluation."""
    return changed(
        run,
        lambda r: (
            {"evaluation": evaluation(r.round, accuracies[r.round // EVERY - 1])} if r.evaluation else {}
        ),
    )


def settings_of(finding: Finding | None) -> list[str]:
    """What a finding advises, by name."""
    assert finding is not None
    return [advice.name for advice in finding.advice]
