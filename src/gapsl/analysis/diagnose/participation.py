"""Who takes part: devices that a method leaves out, and devices that rounds were closed without."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Finding, Severity, counted, listed, percent
from gapsl.analysis.diagnose.learning import LEAST
from gapsl.analysis.diagnose.run import Run

# Everything a device sends in a round in which it is left out is thrown away.
FEW = 0.5  # more is thrown away than used
VERY_FEW = 0.2  # what the leader alone would be: then alignment only throws away
NEVER = 0.05  # of the rounds: a device kept so rarely might as well not be there
# With a third of the devices kept by lot, the longest streak of 10 devices in 300 rounds is about 17.
STREAK = 20
STARVED = 0.5  # of what reaches the server of all samples: half of it is what chance does not explain
# A round that closes with a fraction of the devices, or at a deadline, is closed without whoever is last:
# taking turns at that is what such a policy means.
OFTEN_AWAY = 0.5  # of the rounds that a device was asked in: it is missing more than it is there
GONE = 5  # rounds running that it was last asked in: nobody is last so often by chance
HELD = 0.5  # of a class's samples: without these devices there are too few


def excluded(run: Run) -> Finding | None:
    """Say how many devices are kept in a round, who hardly ever is, and which classes go with them."""
    streaks = kept_or_not(run)
    if not streaks:
        return None
    shares = kept_shares(run)
    share = sum(map(sum, streaks.values())) / sum(map(len, streaks.values()))
    long_enough = len(run.records) >= LEAST
    never = [d for d, kept in shares.items() if kept < NEVER] if long_enough else []
    left = {d: longest_streak(kept) for d, kept in streaks.items() if d not in never}
    out = [d for d, streak in left.items() if streak >= STREAK]
    starved = starved_classes(run, shares) if long_enough else {}
    text = f"{percent(share)} of what the devices send gets into the server's updates; a device is kept in "
    text += f"{percent(min(shares.values()))} to {percent(max(shares.values()))} of its rounds."
    if never:
        text += f" Kept in hardly any round: {counted('device', [run.who(d) for d in never])}."
    if out:
        who = counted("device", [run.who(d) for d in out])
        text += f" Left out for {STREAK} rounds running or more: {who}."
    if starved:
        each = [f"{run.class_name(c)} ({percent(reached)})" for c, reached in starved.items()]
        text += f" Of some classes much less arrives than of others: {listed(each)}."
    if share < FEW:
        title = "Most of what the devices send is thrown away"
    elif never or out or starved:
        title = "Some devices are left out too much"
    else:
        title = "How many devices are kept in a round"
    asks = bool(share < FEW or never or out or starved)
    return Finding(
        "exclusion",
        Severity.TROUBLE if share < VERY_FEW or never else Severity.WATCH if asks else Severity.INFO,
        title,
        text,
        {
            "kept": share,
            "by_device": shares,
            "never": never,
            "streaks": left,
            "starved": {run.class_name(c): reached for c, reached in starved.items()},
        },
        advice.keep_more(run) if asks else (),
    )


def kept_or_not(run: Run) -> dict[int, list[bool]]:
    """Return by device, of each of its rounds, whether it was kept; empty where the method keeps all."""
    found: dict[int, list[bool]] = {}
    for record in run.records:
        for device in record.present if record.selection is not None else ():
            assert record.selection is not None
            found.setdefault(device, []).append(device in record.selection.kept)
    return dict(sorted(found.items()))


def kept_shares(run: Run) -> dict[int, float]:
    """Return in which share of its rounds each device was kept."""
    return {device: statistics.mean(kept) for device, kept in kept_or_not(run).items()}


def longest_streak(kept: Sequence[bool]) -> int:
    """Return the most rounds running in which a device was not kept."""
    longest = current = 0
    for one in kept:
        current = 0 if one else current + 1
        longest = max(longest, current)
    return longest


def starved_classes(run: Run, shares: Mapping[int, float]) -> dict[int, float]:
    """Return the classes of which much less gets into the server's updates than of others, and how much.

    Every device sends as many samples a round, so class c arrives from device i in proportion to p_i(c).
    """
    if run.labels is None:
        return {}
    own = run.labels.proportions[list(shares)]
    total = own.sum(axis=0)
    used = (own * np.array(list(shares.values()))[:, None]).sum(axis=0)
    reached = np.divide(used, total, out=np.full_like(total, np.inf), where=total > 0)
    limit = STARVED * statistics.mean(shares.values())
    return {int(c): float(reached[c]) for c in np.argsort(reached) if reached[c] < limit}


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
    each = listed([f"device {run.who(d)} ({percent(shares[d])} of its rounds)" for d in often])
    text = f"Rounds were closed without {each}."
    if gone:
        text += f" Not there at the end: {listed([run.who(device) for device in gone])}."
    if run.labels is not None and often[-1] < len(run.labels.counts):
        counts = run.labels.counts
        share = counts[often].sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
        held = [run.class_name(int(c)) for c in np.flatnonzero(share >= HELD)]
        if held:
            text += f" Most of what there is of {counted('class', held)} is theirs."
    text += " Look at their logs; `closing: all` waits for everybody."
    return Finding(
        "absent-devices",
        Severity.TROUBLE if gone else Severity.WATCH,
        "Many rounds were closed without some devices",
        text,
        {"absent_shares": shares, "gone": gone},
    )
