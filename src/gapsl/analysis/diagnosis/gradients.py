"""Gradients: too long, too short, not finite, or one device's too loud."""

from __future__ import annotations

import statistics

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.trend import LEAST, ends
from gapsl.analysis.diagnosis.wording import devices, percent, times

# Against the first round, before anything was learned. In runs that go well gradients grow up to 25 times
# on the way, and end at a tenth or a hundredth where there is nothing left to learn.
GREW = 100.0
BLEW_UP = 1000.0
VANISHED = 1e-3
UNLEARNED = 0.5  # of the first loss: gradients that vanish below it have done their work
LOUD = 10.0  # times the others' median: in a mean over ten devices this one is half of it
OFTEN = 0.01  # of the rounds: more is no accident of one batch


def typical_norms(run: Evidence) -> dict[int, float]:
    """Return the median length of the devices' gradients by round, where it is recorded."""
    return {r.number: statistics.median(r.norms.values()) for r in run.rounds if r.norms}


def not_finite(run: Evidence) -> Finding | None:
    """Count the devices that were skipped because their loss or gradient was not finite."""
    rounds = [round for round in run.rounds if round.skipped]
    if not rounds:
        return None
    counts: dict[int, int] = {}
    for round in rounds:
        for device in round.skipped:
            counts[device] = counts.get(device, 0) + 1
    who = sorted(counts, key=lambda d: (-counts[d], d))
    nobody = [round.number for round in rounds if not round.present - round.skipped]
    last = run.rounds[-1]
    bad = bool(nobody or last.skipped) or len(rounds) > OFTEN * len(run.rounds)
    text = (
        f"In {len(rounds)} of {len(run.rounds)} rounds, first in round {rounds[0].number}, a loss or "
        f"gradient was NaN or infinite and the device was skipped: {devices(who)}"
    )
    text += f" (device {run.who(who[0])} in {counts[who[0]]} rounds)." if len(who) > 1 else "."
    if nobody:
        text += f" In round {nobody[0]} no device was left."
    if last.skipped and not run.finished:
        text += f" The run ends with it, in round {last.number} of {run.total_rounds}."
    few = len(counts) <= max(1, len(last.present) // 5)
    if few:
        text += " It is the same few each time: look at their inputs too."
    return Finding(
        "not-finite",
        Severity.TROUBLE if bad else Severity.WATCH,
        "Devices were skipped because their numbers were not finite",
        text,
        {"rounds": len(rounds), "first": rounds[0].number, "by_device": dict(sorted(counts.items()))},
        (*advice.slower(run), *advice.clip(run)),
        breaks=bool(nobody),
    )


def exploding(run: Evidence) -> Finding | None:
    """Compare the longest gradients with the first."""
    norms = typical_norms(run)
    start = next((norm for norm in norms.values() if norm > 0), None)
    if start is None:
        return None
    peak = max(norms, key=lambda number: norms[number])
    growth = norms[peak] / start
    if growth < GREW:
        return None
    return Finding(
        "exploding-gradients",
        Severity.TROUBLE if growth >= BLEW_UP else Severity.WATCH,
        "Gradients have exploded" if growth >= BLEW_UP else "Gradients have grown a lot",
        f"In round {peak} the devices' gradients were {times(growth)} as long as in the first "
        f"({norms[peak]:.2g} against {start:.2g}, median over the devices).",
        {"start": start, "peak": norms[peak], "round": peak, "growth": growth},
        (*advice.slower(run), *advice.clip(run)),
        breaks=growth >= BLEW_UP,
    )


def vanishing(run: Evidence) -> Finding | None:
    """Compare the last gradients with the first, where there is something left to learn."""
    norms = list(typical_norms(run).values())
    losses = [round.loss for round in run.rounds if round.loss is not None]
    found, loss = ends(norms), ends(losses)
    start = next((norm for norm in norms if norm > 0), None)
    if found is None or loss is None or start is None:
        return None
    if found[1] > VANISHED * start or loss[1] < UNLEARNED * losses[0]:
        return None
    how = "exactly zero" if found[1] == 0 else f"{found[1]:.1g}, {percent(found[1] / start)} of the first"
    return Finding(
        "vanishing-gradients",
        Severity.TROUBLE,
        "Gradients have vanished before anything was learned",
        f"The devices' gradients are {how}, and the loss is still {loss[1]:.3g} ({losses[0]:.3g} in the "
        "first round). Often units that large steps have switched off for good.",
        {"start": start, "end": found[1], "loss": loss[1]},
        advice.slower(run),
        breaks=True,
    )


def loud_device(run: Evidence) -> Finding | None:
    """Look for a device whose gradient is much longer than the others'."""
    lengths: dict[int, list[float]] = {}
    for round in run.rounds:
        for device, norm in (round.norms or {}).items():
            lengths.setdefault(device, []).append(norm)
    usual = {d: statistics.median(found) for d, found in lengths.items() if len(found) >= LEAST}
    if len(usual) < 3:
        return None
    device = max(usual, key=lambda d: usual[d])
    others = statistics.median(norm for d, norm in usual.items() if d != device)
    if others == 0 or usual[device] < LOUD * others:
        return None
    return Finding(
        "loud-device",
        Severity.WATCH,
        f"Device {run.who(device)}'s gradient outweighs the others",
        f"It is {times(usual[device] / others)} as long as the others' (medians {usual[device]:.2g} and "
        f"{others:.2g}). It has the hardest data, or broken data; either way the server follows it.",
        {"device": device, "norm": usual[device], "others": others},
        advice.clip(run),
    )
