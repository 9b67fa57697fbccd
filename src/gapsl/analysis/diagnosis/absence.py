"""Absence: devices that rounds were closed without, and what goes with them."""

from __future__ import annotations

import numpy as np

from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.wording import classes, listed, percent

# A round that closes with a fraction of the devices, or at a deadline, is closed without whoever is last:
# taking turns at that is what such a policy means.
OFTEN = 0.5  # of the rounds that a device was asked in: it is missing more than it is there
GONE = 5  # rounds running that it was last asked in: nobody is last so often by chance
HELD = 0.5  # of a class's samples: without these devices there are too few


def absent_devices(run: Evidence) -> Finding | None:
    """Look for devices that many rounds were closed without, or all of the last ones."""
    asked: dict[int, list[bool]] = {}  # by device, of each of its rounds whether it was absent
    for round in run.rounds:
        for device in round.present | round.absent:
            asked.setdefault(device, []).append(device in round.absent)
    shares = {device: sum(rounds) / len(rounds) for device, rounds in sorted(asked.items())}
    gone = [d for d in shares if len(asked[d]) >= GONE and all(asked[d][-GONE:])]
    often = [device for device, share in shares.items() if share >= OFTEN or device in gone]
    if not often:
        return None
    each = listed([f"device {run.who(d)} ({percent(shares[d])} of its rounds)" for d in often])
    text = f"Rounds were closed without {each}."
    if gone:
        text += f" Not there at the end: {listed([run.who(device) for device in gone])}."
    if run.labels is not None and often[-1] < len(run.labels.counts):
        total = run.labels.counts.sum(axis=0)
        share = run.labels.counts[often].sum(axis=0) / np.maximum(total, 1)
        held = [int(c) for c in np.flatnonzero(share >= HELD)]
        if held:
            text += f" Most of what there is of {classes(run, held)} is theirs."
    text += " Look at their logs; `closing: all` waits for everybody."
    return Finding(
        "absent-devices",
        Severity.TROUBLE if gone else Severity.WATCH,
        "Many rounds were closed without some devices",
        text,
        {"absent_shares": shares, "gone": gone},
    )
