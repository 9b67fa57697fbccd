"""Who takes part, and whose numbers can be believed: impossible losses, outliers, absence, exclusion."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping

import numpy as np

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Finding, Severity, classes, listed, percent
from gapsl.analysis.diagnose.learning import LEAST
from gapsl.analysis.diagnose.run import Run
from gapsl.methods.outliers import NOT_FINITE, is_impossible

FEW_DEVICES = 0.2  # of the fleet: so few are the fault, more of them suffer from one
OFTEN = 0.01  # of the rounds with a device skipped: more is no accident of one batch
# Everything a device sends in a round in which it is left out is thrown away.
FEW = 0.5  # more is thrown away than used
VERY_FEW = 0.2  # what the leader alone would be: then alignment only throws away
NEVER = 0.05  # of the rounds: a device kept so rarely might as well not be there
STARVED = 0.5  # of what reaches the server of all samples: half of it is what chance does not explain
# A round that closes with a fraction of the devices, or at a deadline, is closed without whoever is last:
# taking turns at that is what such a policy means.
OFTEN_AWAY = 0.5  # of the rounds that a device was asked in: it is missing more than it is there
GONE = 5  # rounds running that it was last asked in: nobody is last so often by chance
HELD = 0.5  # of a class's samples: without these devices there are too few


def impossible(run: Run) -> Finding | None:
    """Look for losses below zero, which a cross-entropy cannot have."""
    if run.setting("custom.loss") is not None:
        return None
    below = [(loss, d, r.round) for r in run.records for d, loss in r.losses.items() if is_impossible(loss)]
    if not below:
        return None
    lowest, device, round = min(below)
    who = sorted({found for _, found, _ in below})
    rounds = len({found for _, _, found in below})
    return Finding(
        "impossible-loss",
        Severity.TROUBLE,
        f"The loss of {run.who(*who)} cannot be",
        f"A cross-entropy is never below zero, and in {rounds} of {len(run.records)} rounds it is; the "
        f"lowest is {lowest:.3g}, of {run.who(device)} in round {round}. Such a device is faulty or lies, "
        "and steers the server: look at it, or go on without it.",
        {"devices": who, "rounds": rounds, "lowest": lowest},
        advice.robust(run),
    )


def skipped(run: Run) -> Finding | None:
    """Count the devices that were skipped because their numbers were not finite or far from the others'."""
    rounds = [record for record in run.records if record.skipped]
    if not rounds:
        return None
    counts = Counter(device for record in rounds for device in record.skipped)
    who = sorted(counts, key=lambda d: (-counts[d], d))
    nobody = [record.round for record in rounds if not record.present - set(record.skipped)]
    last = run.records[-1]
    few = len(counts) <= max(1, FEW_DEVICES * len(last.present))
    bad = bool(nobody or last.skipped) or len(rounds) > OFTEN * len(run.records)
    first, device = rounds[0], rounds[0].skipped[0]
    why = first.reasons.get(device, NOT_FINITE)  # which older versions did not record
    text = f"In {len(rounds)} of {len(run.records)} rounds "
    text += listed([f"{run.who(device)} ({counts[device]} times)" for device in who])
    text += f" did not count, first {run.who(device)} in round {first.round}: {why}."
    if nobody:
        text += f" In round {nobody[0]} no device was left."
    if last.skipped and not run.finished:
        text += f" The run ends with it, in round {last.round} of {run.total_rounds}."
    if few:
        text += " It is the same few each time: look at their inputs and at what they send."
    return Finding(
        "skipped-devices",
        Severity.TROUBLE if bad else Severity.WATCH,
        "Devices were skipped for their numbers",
        text,
        {"rounds": len(rounds), "first": first.round, "by_device": dict(sorted(counts.items()))},
        advice.robust(run) if few and not nobody else advice.slower(run),
        breaks=bool(nobody),
    )


def away(run: Run) -> Finding | None:
    """Look for devices that many rounds were closed without, or all of the last ones."""
    asked: dict[int, list[bool]] = {}  # by device, of each of its rounds whether it was away
    for record in run.records:
        for device in record.present | record.events.absent.keys():
            asked.setdefault(device, []).append(device in record.events.absent)
    shares = {device: statistics.mean(missing) for device, missing in sorted(asked.items())}
    gone = [d for d in shares if len(asked[d]) >= GONE and all(asked[d][-GONE:])]
    often = [device for device, share in shares.items() if share >= OFTEN_AWAY or device in gone]
    if not often:
        return None
    each = listed([f"{run.who(d)} ({percent(shares[d])} of its rounds)" for d in often])
    text = f"Rounds were closed without {each}."
    if gone:
        text += f" Not there at the end: {run.who(*gone)}."
    if run.labels is not None and often[-1] < len(run.labels.counts):
        counts = run.labels.counts
        share = counts[often].sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
        held = [run.class_name(int(c)) for c in np.flatnonzero(share >= HELD)]
        if held:
            text += f" Most of what there is of {classes(held)} is theirs."
    text += " Look at their logs; `closing: all` waits for everybody."
    return Finding(
        "absent-devices",
        Severity.TROUBLE if gone else Severity.WATCH,
        "Many rounds were closed without some devices",
        text,
        {"absent_shares": shares, "gone": gone},
    )


def excluded(run: Run) -> Finding | None:
    """Look for devices that the method hardly ever keeps, and for classes that go with them."""
    shares = kept_shares(run)
    if not shares or len(run.records) < LEAST:
        return None
    share = statistics.mean(shares.values())
    never = [d for d, kept in shares.items() if kept < NEVER]
    starved = {run.class_name(c): reached for c, reached in starved_classes(run, shares).items()}
    if share >= VERY_FEW and not never and not starved:
        return None
    text = f"A device is kept in {percent(min(shares.values()))} to {percent(max(shares.values()))} of its "
    text += f"rounds, {percent(share)} on average; what it sends in the others is thrown away."
    if never:
        text += f" Kept in hardly any round: {run.who(*never)}."
    if starved:
        each = [f"{name} ({percent(reached)})" for name, reached in starved.items()]
        text += f" Of some classes much less arrives than of others: {listed(each)}."
    return Finding(
        "exclusion",
        Severity.TROUBLE if share < VERY_FEW or never else Severity.WATCH,
        "Some devices are left out too much",
        text,
        {"kept": share, "by_device": shares, "never": never, "starved": starved},
        advice.keep_more(run),
    )


def kept_shares(run: Run) -> dict[int, float]:
    """Return in which share of its rounds each device was kept; empty where the method keeps all."""
    found: dict[int, list[bool]] = {}
    for record in run.records:
        for device in record.present if record.selection is not None else ():
            assert record.selection is not None
            found.setdefault(device, []).append(device in record.selection.kept)
    return {device: statistics.mean(kept) for device, kept in sorted(found.items())}


def starved_classes(run: Run, shares: Mapping[int, float]) -> dict[int, float]:
    """Return the classes of which much less gets into the server's updates than of others, and how much.

    Every device sends as many samples per round, so class c arrives from device i in proportion to p_i(c).
    """
    if run.labels is None:
        return {}
    own = run.labels.proportions[list(shares)]
    total = own.sum(axis=0)
    used = (own * np.array(list(shares.values()))[:, None]).sum(axis=0)
    reached = np.divide(used, total, out=np.full_like(total, np.inf), where=total > 0)
    limit = STARVED * statistics.mean(shares.values())
    return {int(c): float(reached[c]) for c in np.argsort(reached) if reached[c] < limit}
