"""Drift: whether the devices' halves still fit the one server that all of them share."""

from __future__ import annotations

import statistics

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.common_ground import agreed
from gapsl.analysis.diagnosis.evidence import Evaluation, Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.wording import percent, points, times

# Where labels are dealt at random an ensemble is 3 to 5 points better than its members, and a small test set
# adds two or three of noise. Beyond 15 points, see the figures in skew.py, labels are usually the reason.
APART = 0.08
FAR_APART = 0.15
# In units of the start's own length. Halves that learn well end between 0.3 and 1.3, shared ones furthest;
# two that have each gone 1.0 in directions of their own are at 60° to each other.
FAR = 1.0
BLOWN_UP = 10.0  # no useful training moves weights so far
STRAYING = 3.0  # times the others' median
STRAYING_LEAST = 0.1  # below it a half has hardly moved, whatever the others did


def gap(evaluation: Evaluation) -> float:
    """Return how much better the devices are together than alone."""
    return max(evaluation.ensemble, evaluation.merged or 0.0) - evaluation.device_mean


def halves_apart(run: Evidence) -> Finding | None:
    """Compare the devices together with the devices alone."""
    last = run.last
    if last is None or not run.own_halves or gap(last) < APART:
        return None
    together = f"{percent(last.ensemble)} as an ensemble"
    if last.merged is not None:
        together += f" and {percent(last.merged)} with their halves averaged"
    text = (
        f"A device alone is right in {percent(last.device_mean)} of the {last.split} set, all of them reach "
        f"{together}: what is needed is there, but each half puts it in a way of its own, and one server "
        "has to read them all."
    )
    first = next((e for e in run.evaluations if gap(e) >= APART), last)
    if first.round < last.round and points(gap(first)) != points(gap(last)):
        text += (
            f" The gap was {points(gap(first))} in round {first.round} and is {points(gap(last))} "
            f"in round {last.round}."
        )
    if last.drift:
        text += f" Since the start the halves have moved by {mean_drift(last):.2f} of their length."
    if (apart := agreed(run)) is not None:
        text += f" On the probes they agree to {percent(apart)}: what is left is enough to tell them apart."
    return Finding(
        "halves-apart",
        Severity.TROUBLE if gap(last) >= FAR_APART else Severity.WATCH,
        "The devices' halves have drifted apart",
        text,
        {
            "device_mean": last.device_mean,
            "ensemble": last.ensemble,
            "merged": last.merged,
            "drift": None if last.drift is None else dict(last.drift),
        },
        (*advice.recommended(run), *advice.slower_halves(run), *advice.other_methods(run)),
    )


def blown_up(run: Evidence) -> Finding | None:
    """Look for weights that have gone where no useful training goes."""
    last = run.last
    if last is None or not last.drift or mean_drift(last) < BLOWN_UP:
        return None
    return Finding(
        "weights-blown-up",
        Severity.TROUBLE,
        "The weights of the devices' halves have blown up",
        f"They have moved by {times(mean_drift(last))} the length they began with: the steps were far too "
        "large.",
        {"mean": mean_drift(last), "drift": dict(last.drift)},
        (*advice.slower(run), *advice.clip(run)),
        breaks=True,
    )


def far_from_start(run: Evidence) -> Finding | None:
    """Look at how far the halves have gone, where the records say it."""
    last = run.last
    if last is None or not last.drift or blown_up(run) is not None:
        return None
    mean = mean_drift(last)
    numbers = {"mean": mean, "drift": dict(last.drift)}
    together = agreed(run) is not None
    if mean >= FAR and run.own_halves and not together:
        return Finding(
            "far-from-start",
            Severity.WATCH,
            "The devices' halves are far from their common start",
            f"On average they have moved by {mean:.2f} times their length, each its own way and never "
            "averaged: little of what they had in common is left.",
            numbers,
            (*advice.slower_halves(run), *advice.recommended(run)),
        )
    if halves_apart(run) is not None:
        return None  # which says it already
    whose = ", each its own way" if run.own_halves else ""
    if together:
        whose = ", held together by the probes"
    text = f"By {mean:.2f} of their length on average{whose}." if mean else "Not at all."
    return Finding("drift", Severity.INFO, "How far the devices' halves have moved", text, numbers)


def straying_device(run: Evidence) -> Finding | None:
    """Look for a device whose half has gone much further than the others'."""
    last = run.last
    if last is None or not last.drift or len(last.drift) < 3:
        return None
    device, furthest = max(last.drift.items(), key=lambda item: item[1])
    usual = statistics.median(far for other, far in last.drift.items() if other != device)
    if furthest < STRAYING_LEAST or furthest < STRAYING * usual:
        return None
    return Finding(
        "straying-device",
        Severity.WATCH,
        f"Device {run.who(device)}'s half has moved much further than the others'",
        f"It has moved by {furthest:.2f} of its length, the others by {usual:.2f} (median). "
        "Look at its data, and at how often it trains.",
        {"device": device, "drift": furthest, "others": usual},
        advice.slower_halves(run),
    )


def mean_drift(evaluation: Evaluation) -> float:
    """Return the devices' mean distance from the start."""
    return statistics.mean((evaluation.drift or {0: 0.0}).values())
