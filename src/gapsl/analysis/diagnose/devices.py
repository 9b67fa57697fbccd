"""The devices beside each other: client-side models, accuracy, gradients and labels."""

from __future__ import annotations

import numpy as np

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Finding, Severity, classes, percent, points
from gapsl.analysis.diagnose.learning import ends
from gapsl.analysis.diagnose.participation import FEW, kept_shares
from gapsl.analysis.diagnose.run import Run
from gapsl.analysis.labels import (
    MILD,
    STRONG,
    Labels,
    chance_distance,
    distances,
    effective_classes,
    excess_distance,
)
from gapsl.run.records import Evaluation

LONE = 0.9  # of a class's samples on one device: with strays elsewhere it still is that device's class
# Where labels are dealt at random an ensemble is 3 to 5 points better than its members, and a small test set
# adds two or three of noise. Beyond 15 points, see the figures in labels.py, labels are usually why.
APART = 0.08
FAR_APART = 0.15
# Of the leader's length. Where probes work client-side models end at 0.004 to 0.03 and are at 0.05 at most;
# with steps ten times too large they are at 0.08 to 0.1, and accuracy suffers; left alone at 0.4 and more.
NOT_ALIGNED = 0.07
BEHIND = 0.15  # the worst device below the mean; in runs that go well it is within 5 points
FAR_BEHIND = 0.3


def drift(run: Run) -> Finding | None:
    """Compare the devices together with the devices alone."""
    last = run.last
    if last is None or not run.own_models or gap(last) < APART:
        return None
    together = [] if last.ensemble is None else [f"{percent(last.ensemble)} as an ensemble"]
    if last.merged is not None:
        together.append(f"{percent(last.merged)} with their client-side models averaged")
    text = (
        f"A device alone has an accuracy of {percent(last.device_mean)} on the {last.split} set, all of them "
        f"reach {' and '.join(together)}: each client-side model has its own way of putting things, and one "
        "server has to read them all."
    )
    if last.local is not None and last.local - last.device_mean >= FAR_APART:
        text += f" On labels mixed like its own a device reaches {percent(last.local)}."
    return Finding(
        "drift",
        Severity.TROUBLE if gap(last) >= FAR_APART else Severity.WATCH,
        "The client-side models have drifted apart",
        text,
        {name: getattr(last, name) for name in ("device_mean", "ensemble", "merged", "local")},
        (*advice.recommended(run), *advice.slower_devices(run), *advice.other_methods(run)),
    )


def gap(evaluation: Evaluation) -> float:
    """Return how much better the devices are together than alone."""
    return max(evaluation.ensemble or 0.0, evaluation.merged or 0.0) - evaluation.device_mean


def probes(run: Run) -> Finding | None:
    """Say that the client-side models are far from what they are led to on the probes."""
    apart = {r.round: r.probes.apart for r in run.records if r.probes and r.probes.apart is not None}
    values = list(apart.values())
    last = (ends(values) or (0.0, values[-1]))[1] if values else 0.0
    if last < NOT_ALIGNED:
        return None
    peak = max(apart, key=lambda round: apart[round])
    return Finding(
        "probes-not-aligned",
        Severity.WATCH,
        "The client-side models do not agree on the probes",
        f"Given the same pictures, they are {percent(last)} away from what their leaders make of them on "
        f"average (at most {percent(apart[peak])}, in round {peak}): each learns faster than it is led back.",
        {"end": last, "max": apart[peak], "round": peak},
        (*advice.slower_devices(run), *advice.recommended(run)),
    )


def worst(run: Run) -> Finding | None:
    """Look for a device far below the mean, and at what labels it has."""
    last = run.last
    if last is None or len(last.device_accuracy) < 2:
        return None
    device, lowest = min(last.device_accuracy.items(), key=lambda item: item[1])
    behind = last.device_mean - lowest
    if behind < BEHIND:
        return None
    text = f"Its accuracy on the {last.split} set is {percent(lowest)}, {points(behind)} below the mean."
    if run.labels is not None and device < len(run.labels.counts):
        own = run.labels.proportions[device]
        most = int(own.argmax())
        text += (
            f" It has {run.labels.counts[device].sum()} samples, {percent(float(own[most]))} of them of "
            f"class {run.class_name(most)}."
        )
    kept = kept_shares(run).get(device)
    if kept is not None:
        text += f" It was kept in {percent(kept)} of its rounds."
    more = advice.keep_more(run) if kept is not None and kept < FEW else ()
    name = run.who(device)
    return Finding(
        "worst-device",
        Severity.TROUBLE if behind >= FAR_BEHIND else Severity.WATCH,
        f"{name[0].upper()}{name[1:]} does much worse than the rest",
        text,
        {"device": device, "accuracy": lowest, "device_mean": last.device_mean, "kept": kept},
        (*more, *advice.recommended(run), *advice.slower_devices(run)),
    )


def label_skew(run: Run) -> Finding | None:
    """Say how far the devices' labels are from the pooled ones, where chance does not explain it."""
    if run.labels is None or run.pooled or len(run.labels.counts) < 2:
        return None
    counts = run.labels.counts
    excess = excess_distance(counts)
    if excess < MILD:
        return None
    away, worth = distances(counts), effective_classes(counts)
    mean, chance = float(away.mean()), chance_distance(counts)
    total = int((counts.sum(axis=0) > 0).sum())
    text = (
        f"On average {percent(mean)} of a device's labels would have to change to match everybody's "
        f"({run.who(int(away.argmax()))}: {percent(float(away.max()))}; dealt at random: {percent(chance)}). "
        f"A device's labels are worth {worth.mean():.1f} of the {total} classes"
    )
    if run.setting("calibration") == "prior":
        text += "; calibration takes that out of the loss."
    elif run.own_models:
        text += ", and each client-side model learns its own label frequencies."
    else:
        text += "."
    alone = lone_classes(run.labels)
    if alone:
        held = [f"{run.class_name(c)} on {run.who(device)}" for c, device in alone.items()]
        text += f" Held by one device: {classes(held)}; a round without it teaches none of it."
    numbers = {
        "mean_distance": mean,
        "chance_distance": chance,
        "distances": away.tolist(),
        "effective_classes": worth.tolist(),
        "lone_classes": {run.class_name(c): device for c, device in alone.items()},
    }
    title = f"The devices see {'very ' if excess >= STRONG else ''}different labels"
    return Finding("label-skew", Severity.INFO, title, text, numbers)


def lone_classes(labels: Labels) -> dict[int, int]:
    """Return the classes that one device holds (nearly) alone, with that device."""
    totals = labels.counts.sum(axis=0)
    shares = labels.counts.max(axis=0) / np.maximum(totals, 1)
    lone = np.flatnonzero((totals > 0) & (shares >= LONE))
    return {int(c): int(labels.counts[:, c].argmax()) for c in lone}
