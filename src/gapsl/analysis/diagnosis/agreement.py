"""Agreement: whether the devices' gradients point the same way."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.trend import LEAST, PARTS, ends

# Beyond 90° one device's step undoes another's. n gradients that cancel are at acos(-1 / (n - 1)): 96° for
# ten, so there is little room above.
OPPOSED = 90.0
NOTHING_IN_COMMON = 80.0
# Where the loss is down to a tenth, what is left of the gradients is noise, and that is at 90° to everything.
SETTLED = 0.1
APART = 10.0  # degrees above the others' median; scores usually scatter by 3° to 6°


def disagreement(run: Evidence) -> Finding | None:
    """Say how the devices' gradients lie to each other, and whether that changes."""
    angles = [math.degrees(round.angle) for round in run.rounds if round.angle is not None]
    if not angles:
        return None
    first, last = ends(angles) or (angles[0], angles[-1])
    numbers = {"start": first, "end": last, "max": max(angles)}
    text = f"The mean angle between two devices' gradients is {last:.0f}° ({first:.0f}° at the start)"
    spread = [math.degrees(r.dispersion) for r in run.rounds if r.dispersion is not None]
    if spread:
        before, now = ends(spread) or (spread[0], spread[-1])
        numbers |= {"dispersion_start": before, "dispersion_end": now}
        text += f", the devices' scores scatter by {now:.1f}° ({before:.1f}°)"
    if last >= OPPOSED and not settled(run) and len(angles) >= LEAST:
        return Finding(
            "gradients-opposed",
            Severity.WATCH,
            "The devices' gradients pull against each other",
            f"{text}. Above 90° one device undoes what another learns, and their mean moves the server "
            "little.",
            numbers,
            (*advice.recommended(run), *advice.larger_batches(run)),
        )
    if last >= NOTHING_IN_COMMON:
        text += (
            ": little in common, as usual when there is little left to learn"
            if settled(run)
            else ": little in common"
        )
    return Finding("angles", Severity.INFO, "How far the gradients agree", f"{text}.", numbers)


def settled(run: Evidence) -> bool:
    """Say whether the loss has fallen so far that the gradients are mostly noise."""
    losses = [round.loss for round in run.rounds if round.loss is not None]
    found = ends(losses)
    return found is not None and found[1] <= SETTLED * losses[0]


def outlying_device(run: Evidence) -> Finding | None:
    """Look for a device whose gradients point elsewhere than everybody's."""
    found = furthest([round.scores for round in run.rounds])
    if found is None or found.score < found.others + APART:
        return None
    return Finding(
        "outlying-device",
        Severity.WATCH,
        f"Device {run.who(found.device)}'s gradients stand apart",
        f"They are at {found.score:.0f}° to the others' on average, the others at {found.others:.0f}° "
        "(median). Its data may be broken - or it alone may hold a class.",
        found._asdict(),
        advice.recommended(run),
    )


class Furthest(NamedTuple):
    """The device that agrees least with the others at the end."""

    device: int
    score: float  # its mean angle to the others, in degrees
    others: float  # the median of theirs


def furthest(rounds: Sequence[Mapping[int, float]]) -> Furthest | None:
    """Return who agrees least by scores in radians, a round each; None where there are too few."""
    told = [scores for scores in rounds if len(scores) > 2]
    if len(told) < LEAST:
        return None
    found: dict[int, list[float]] = {}
    for scores in told[-max(LEAST, len(told) // PARTS) :]:
        for device, score in scores.items():
            found.setdefault(device, []).append(math.degrees(score))
    means = {device: statistics.mean(own) for device, own in found.items()}
    device = max(means, key=lambda d: means[d])
    return Furthest(device, means[device], statistics.median(m for d, m in means.items() if d != device))
