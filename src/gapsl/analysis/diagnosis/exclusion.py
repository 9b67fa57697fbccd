"""Exclusion: who is left out how often, and which classes go with them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence, Labels
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.trend import LEAST
from gapsl.analysis.diagnosis.wording import NAMED, capital, classes, devices, percent

# Everything a device sends in a round in which it is left out is thrown away.
FEW = 0.5  # more is thrown away than used
VERY_FEW = 0.2  # what the leader alone would be: then alignment only throws away
NEVER = 0.05  # of the rounds: a device kept so rarely might as well not be there
# With a third of the devices kept by lot, the longest streak of 10 devices in 300 rounds is about 17.
STREAK = 20
STARVED = 0.5  # of what reaches the server of all samples: half of it is what chance does not explain
FORGOTTEN = 0.05  # of a class's samples


def kept_shares(run: Evidence) -> dict[int, float]:
    """Return in which share of its rounds each device was kept."""
    kept: dict[int, int] = {}
    present: dict[int, int] = {}
    for round in run.rounds:
        for device in round.present if round.kept is not None else ():
            present[device] = present.get(device, 0) + 1
            kept[device] = kept.get(device, 0) + (round.kept is not None and device in round.kept)
    return {device: kept[device] / present[device] for device in sorted(present)}


def longest_streaks(run: Evidence) -> dict[int, int]:
    """Return the most rounds running that each device was there and not kept."""
    current: dict[int, int] = {}
    longest: dict[int, int] = {}
    for round in run.rounds:
        for device in round.present if round.kept is not None else ():
            left_out = round.kept is not None and device not in round.kept
            current[device] = current.get(device, 0) + 1 if left_out else 0
            longest[device] = max(longest.get(device, 0), current[device])
    return dict(sorted(longest.items()))


def reach(labels: Labels, shares: Mapping[int, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the share of each class's samples that got into the server's updates; NaN for no samples.

    Every device sends as many samples a round, so class c arrives from device i in proportion to p_i(c).
    """
    own = labels.proportions[list(shares)]
    total = own.sum(axis=0)
    used = (own * np.array(list(shares.values()))[:, None]).sum(axis=0)
    return np.asarray(np.divide(used, total, out=np.full_like(total, np.nan), where=total > 0))


def few_kept(run: Evidence) -> Finding | None:
    """Say how many devices are kept in a round."""
    rounds = [round for round in run.rounds if round.kept is not None and round.present]
    if not rounds:
        return None
    kept = statistics.mean(len(round.kept or ()) for round in rounds)
    present = statistics.mean(len(round.present) for round in rounds)
    share = kept / present
    shares = kept_shares(run)
    numbers = {"kept": kept, "present": present, "by_device": shares}
    span = f"each in {percent(min(shares.values()))} to {percent(max(shares.values()))} of its rounds"
    if share >= FEW:
        text = "All of them." if share == 1 else f"{kept:.1f} of {present:.0f} on average, {span}."
        return Finding("kept", Severity.INFO, "How many devices are kept in a round", text, numbers)
    others = (
        "though they still train their halves"
        if run.setting("gapsl.excluded") == "plain"
        else "and they do not learn from it"
    )
    return Finding(
        "few-kept",
        Severity.TROUBLE if share < VERY_FEW else Severity.WATCH,
        "Most of what the devices send is thrown away",
        f"{kept:.1f} of {present:.0f} devices are kept in a round on average, {span}. The server does not "
        f"learn from the others ({percent(1 - share)} of all samples), {others}.",
        numbers,
        advice.keep_more(run),
    )


def left_out(run: Evidence) -> Finding | None:
    """Look for devices that are hardly ever kept, or left out for long."""
    shares, streaks = kept_shares(run), longest_streaks(run)
    if len(run.rounds) < LEAST or not shares:
        return None
    never = [device for device, share in shares.items() if share < NEVER]
    long = [device for device, streak in streaks.items() if streak >= STREAK and device not in never]
    if not never and not long:
        return None
    parts = []
    if never:
        each = ", ".join(f"{d}: {percent(shares[d])}" for d in never[:NAMED])
        parts.append(f"kept in hardly any round: {devices(never)} ({each})")
    if long:
        worst = max(long, key=lambda d: streaks[d])
        worst_of = f"device {run.who(worst)}: " if len(long) > 1 else ""
        parts.append(
            f"left out for {STREAK} rounds running or more: {devices(long)} "
            f"({worst_of}{streaks[worst]} rounds)"
        )
    text = "; ".join(parts)
    return Finding(
        "left-out",
        Severity.TROUBLE if never else Severity.WATCH,
        "Some devices hardly take part" if never else "Some devices are left out for long",
        f"{capital(text)}. Meanwhile the server moves on and their halves fall behind it.",
        {"never": never, "streaks": streaks, "kept_shares": shares},
        advice.keep_more(run),
    )


def starved_classes(run: Evidence) -> Finding | None:
    """Look for classes whose samples are left out with the devices that hold them."""
    shares = kept_shares(run)
    if run.labels is None or len(run.rounds) < LEAST or not shares:
        return None
    reached = reach(run.labels, shares)
    usual = statistics.mean(shares.values())
    starved = [int(c) for c in np.argsort(reached) if reached[c] < STARVED * usual]
    if not starved:
        return None
    last = run.last
    parts = []
    for c in starved[:NAMED]:
        holder = int(run.labels.counts[:, c].argmax())
        part = f"of class {run.class_name(c)} only {percent(float(reached[c]))} "
        part += f"(most of it on device {run.who(holder)}"
        accuracy = last.class_accuracy[c] if last is not None and c < len(last.class_accuracy) else None
        part += f", recognised in {percent(accuracy)})" if accuracy is not None else ")"
        parts.append(part)
    parts += [f"and {len(starved) - NAMED} more classes"] * (len(starved) > NAMED)
    return Finding(
        "starved-classes",
        Severity.TROUBLE if reached[starved[0]] < FORGOTTEN else Severity.WATCH,
        f"Exclusion starves {classes(run, starved)}",
        f"{percent(usual)} of all samples get into the server's updates, {', '.join(parts)}.",
        {"usual": usual, "reached": {run.class_name(c): float(reached[c]) for c in starved}},
        advice.keep_more(run),
    )
