"""Label skew: how different the devices' labels are."""

from __future__ import annotations

import numpy as np

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.label_distance import (
    MILD,
    STRONG,
    chance_distance,
    distances,
    effective_classes,
    excess_distance,
)
from gapsl.analysis.diagnosis.wording import NAMED, capital, classes, percent

LONE = 0.9  # of a class's samples on one device: with strays elsewhere it still is that device's class


def label_skew(run: Evidence) -> Finding | None:
    """Say how far the devices' labels are from the pooled ones."""
    if run.labels is None or run.pooled or len(run.labels.counts) < 2:
        return None
    counts = run.labels.counts
    away, worth = distances(counts), effective_classes(counts)
    mean, chance = float(away.mean()), chance_distance(counts)
    strong, mild = excess_distance(counts) >= STRONG, excess_distance(counts) >= MILD
    calibrated = run.setting("calibration") == "prior"
    total = int((counts.sum(axis=0) > 0).sum())
    text = (
        f"On average {percent(mean)} of a device's labels would have to change to match everybody's "
        f"(device {run.who(int(away.argmax()))}: {percent(float(away.max()))}; dealt at random: "
        f"{percent(chance)}). "
        f"A device's labels are worth {worth.mean():.1f} of the {total} classes"
    )
    if strong and run.own_halves and not calibrated:
        text += ", so a loss that counts them teaches each half its own label frequencies."
    elif strong and calibrated:
        whose = "devices' loss" if run.setting("calibration_for") == "devices" else "loss"
        text += f"; calibration takes that out of the {whose}."
    elif strong:
        text += ", but the halves are not each device's own, so none can learn its labels alone."
    else:
        text += "."
    title = "The devices see about the same labels"
    if mild:
        title = f"The devices see {'very ' if strong else ''}different labels"
    watch = strong and run.own_halves and not calibrated
    return Finding(
        "label-skew",
        Severity.WATCH if watch else Severity.INFO,
        title,
        text,
        {
            "mean_distance": mean,
            "chance_distance": chance,
            "distances": away.tolist(),
            "effective_classes": worth.tolist(),
        },
        advice.recommended(run) if watch else (),
    )


def lone_classes(run: Evidence) -> Finding | None:
    """Say which classes one device holds alone: left out or absent, it takes them with it."""
    if run.labels is None or run.pooled or len(run.labels.counts) < 2:
        return None
    counts = run.labels.counts
    totals = counts.sum(axis=0)
    shares = counts.max(axis=0) / np.maximum(totals, 1)
    lone = [int(c) for c in np.flatnonzero((totals > 0) & (shares >= LONE))]
    if not lone:
        return None
    holders = {c: int(counts[:, c].argmax()) for c in lone}
    parts = [
        f"{percent(float(shares[c]))} of class {run.class_name(c)} on device {run.who(holders[c])}"
        for c in lone[:NAMED]
    ]
    parts += [f"and {len(lone) - NAMED} more"] * (len(lone) > NAMED)
    return Finding(
        "lone-classes",
        Severity.INFO,
        f"{capital(classes(run, lone))}: held by one device{'' if len(lone) == 1 else ' each'}",
        f"{', '.join(parts)}. In a round without that device nobody teaches the server its class.",
        {"holders": {run.class_name(c): holders[c] for c in lone}},
    )
