"""The devices beside each other: labels, client-side models, accuracy and gradients."""

from __future__ import annotations

import math
import statistics

import numpy as np

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Finding, Severity, counted, percent, points
from gapsl.analysis.diagnose.learning import LEAST, ends
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
# adds two or three of noise. Beyond 15 points, see the figures in label_skew.py, labels are usually why.
APART = 0.08
FAR_APART = 0.15
# Of the leader's length. Where probes work client-side models end at 0.004 to 0.03 and are at 0.05 at most;
# with steps ten times too large they are at 0.08 to 0.1, and accuracy suffers; left alone at 0.4 and more.
NOT_ALIGNED = 0.07
BEHIND = 0.15  # the worst device below the mean; in runs that go well it is within 5 points
FAR_BEHIND = 0.3
# Beyond 90° one device's step undoes another's. n gradients that cancel are at acos(-1 / (n - 1)): 96° for
# ten, so there is little room above.
OPPOSED = 90.0
# Where the loss is down to a tenth, what is left of the gradients is noise, and that is at 90° to everything.
SETTLED = 0.1


def label_skew(run: Run) -> Finding | None:
    """Say how far the devices' labels are from the pooled ones, and who holds a class alone."""
    if run.labels is None or run.pooled or len(run.labels.counts) < 2:
        return None
    counts = run.labels.counts
    away, worth = distances(counts), effective_classes(counts)
    mean, chance = float(away.mean()), chance_distance(counts)
    strong, mild = excess_distance(counts) >= STRONG, excess_distance(counts) >= MILD
    calibrated = run.setting("calibration") == "prior"
    watch = strong and run.own_models and not calibrated
    total = int((counts.sum(axis=0) > 0).sum())
    text = (
        f"On average {percent(mean)} of a device's labels would have to change to match everybody's "
        f"(device {run.who(int(away.argmax()))}: {percent(float(away.max()))}; dealt at random: "
        f"{percent(chance)}). A device's labels are worth {worth.mean():.1f} of the {total} classes"
    )
    if watch:
        text += ", so a loss that counts them teaches each client-side model its own label frequencies."
    elif strong and calibrated:
        whose = "devices' loss" if run.setting("calibration_for") == "devices" else "loss"
        text += f"; calibration takes that out of the {whose}."
    elif strong:
        text += ", but devices do not train client-side models of their own, which could learn theirs alone."
    else:
        text += "."
    alone = lone_classes(run.labels)
    if alone:
        held = [f"{run.class_name(c)} on device {run.who(device)}" for c, device in alone.items()]
        text += f" Held by one device: {counted('class', held)}; a round without it teaches none of it."
    title = "The devices see about the same labels"
    if mild:
        title = f"The devices see {'very ' if strong else ''}different labels"
    numbers = {
        "mean_distance": mean,
        "chance_distance": chance,
        "distances": away.tolist(),
        "effective_classes": worth.tolist(),
        "lone_classes": {run.class_name(c): device for c, device in alone.items()},
    }
    severity = Severity.WATCH if watch else Severity.INFO
    return Finding("label-skew", severity, title, text, numbers, advice.recommended(run) if watch else ())


def lone_classes(labels: Labels) -> dict[int, int]:
    """Return the classes that one device holds (nearly) alone, with that device."""
    totals = labels.counts.sum(axis=0)
    shares = labels.counts.max(axis=0) / np.maximum(totals, 1)
    lone = np.flatnonzero((totals > 0) & (shares >= LONE))
    return {int(c): int(labels.counts[:, c].argmax()) for c in lone}


def drift(run: Run) -> Finding | None:
    """Compare the devices together with the devices alone."""
    last = run.last
    if last is None or not run.own_models or gap(last) < APART:
        return None
    together = [] if last.ensemble is None else [f"{percent(last.ensemble)} as an ensemble"]
    if last.merged is not None:
        together.append(f"{percent(last.merged)} with their client-side models averaged")
    text = (
        f"A device alone is right in {percent(last.device_mean)} of the {last.split} set, all of them reach "
        f"{' and '.join(together)}: each client-side model puts it in a way of its own, and one server has "
        "to read them all."
    )
    first = next((e for e in run.evaluations if gap(e) >= APART), last)
    if first.round < last.round and points(gap(first)) != points(gap(last)):
        text += f" The gap was {points(gap(first))} in round {first.round}."
    if last.drift:
        moved = statistics.mean(last.drift.values())
        text += f" Since the start they have moved by {moved:.2f} of their length."
    if last.local is not None and last.local - last.device_mean >= FAR_APART:
        text += f" On labels mixed like its own a device is right in {percent(last.local)}."
    return Finding(
        "drift",
        Severity.TROUBLE if gap(last) >= FAR_APART else Severity.WATCH,
        "The client-side models have drifted apart",
        text,
        {
            "device_mean": last.device_mean,
            "ensemble": last.ensemble,
            "merged": last.merged,
            "local": last.local,
            "drift": None if last.drift is None else dict(last.drift),
        },
        (*advice.recommended(run), *advice.slower_devices(run), *advice.other_methods(run)),
    )


def gap(evaluation: Evaluation) -> float:
    """Return how much better the devices are together than alone."""
    return max(evaluation.ensemble or 0.0, evaluation.merged or 0.0) - evaluation.device_mean


def probes(run: Run) -> Finding | None:
    """Say how far the client-side models are from what they are led to on the probes."""
    apart = {r.round: r.probes.apart for r in run.records if r.probes and r.probes.apart is not None}
    if not apart:
        return None
    values = list(apart.values())
    last = (ends(values) or (values[0], values[-1]))[1]
    peak = max(apart, key=lambda round: apart[round])
    aligned = last < NOT_ALIGNED
    text = (
        f"Given the same pictures, they are {percent(last)} away from what their leaders make of them "
        f"on average (at most {percent(apart[peak])}, in round {peak})"
    )
    if aligned:
        text += ": what one device sends means nearly the same as what another does."
    else:
        text += ": each learns faster than it is led back."
    return Finding(
        "probes-aligned" if aligned else "probes-not-aligned",
        Severity.INFO if aligned else Severity.WATCH,
        f"The client-side models {'' if aligned else 'do not '}agree on the probes",
        text,
        {"end": last, "max": apart[peak], "round": peak},
        () if aligned else (*advice.slower_devices(run), *advice.recommended(run)),
    )


def spread(run: Run) -> Finding | None:
    """Look for a device far below the mean, and at what labels it has."""
    last = run.last
    if last is None or len(last.device_accuracy) < 2:
        return None
    device, lowest = min(last.device_accuracy.items(), key=lambda item: item[1])
    behind = last.device_mean - lowest
    if behind < BEHIND:
        return None
    text = f"It is right in {percent(lowest)} of the {last.split} set, {points(behind)} below the mean."
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
    return Finding(
        "worst-device",
        Severity.TROUBLE if behind >= FAR_BEHIND else Severity.WATCH,
        f"Device {run.who(device)} does much worse than the rest",
        text,
        {"device": device, "accuracy": lowest, "device_mean": last.device_mean, "kept": kept},
        (*more, *advice.recommended(run), *advice.slower_devices(run)),
    )


def disagreement(run: Run) -> Finding | None:
    """Say how the devices' gradients lie to each other, and whether that changes."""
    angles = [math.degrees(r.angle_mean) for r in run.records if r.angle_mean is not None]
    if not angles:
        return None
    first, last = ends(angles) or (angles[0], angles[-1])
    loss = ends(list(run.losses.values()))
    settled = loss is not None and loss[1] <= SETTLED * next(iter(run.losses.values()))
    opposed = last >= OPPOSED and not settled and len(angles) >= LEAST
    text = f"The mean angle between two devices' gradients is {last:.0f}° ({first:.0f}° at the start)."
    if opposed:
        text += " Above 90° one device undoes what another learns, and their mean moves the server little."
    elif settled:
        text += " Near 90° is usual when there is little left to learn."
    return Finding(
        "gradients-opposed" if opposed else "angles",
        Severity.WATCH if opposed else Severity.INFO,
        "The devices' gradients pull against each other" if opposed else "How far the gradients agree",
        text,
        {"start": first, "end": last, "max": max(angles)},
        (*advice.recommended(run), *advice.larger_batches(run)) if opposed else (),
    )
