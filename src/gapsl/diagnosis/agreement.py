"""Agreement: whether the devices' gradients point the same way."""

from __future__ import annotations

import math
import statistics

from gapsl.diagnosis import advice
from gapsl.diagnosis.evidence import Evidence
from gapsl.diagnosis.finding import Finding, Severity
from gapsl.diagnosis.trend import LEAST, PARTS, ends

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
            (*advice.calibrate(run), *advice.larger_batches(run)),
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
    rounds = [round for round in run.rounds if len(round.scores) > 2]
    if len(rounds) < LEAST:
        return None
    scores: dict[int, list[float]] = {}
    for round in rounds[-max(LEAST, len(rounds) // PARTS) :]:
        for device, score in round.scores.items():
            scores.setdefault(device, []).append(math.degrees(score))
    means = {device: statistics.mean(found) for device, found in scores.items()}
    device = max(means, key=lambda d: means[d])
    others = statistics.median(mean for d, mean in means.items() if d != device)
    if means[device] < others + APART:
        return None
    return Finding(
        "outlying-device",
        Severity.WATCH,
        f"Device {device}'s gradients stand apart",
        f"They are at {means[device]:.0f}° to the others' on average, the others at {others:.0f}° (median). "
        "Its data may be broken - or it alone may hold a class.",
        {"device": device, "score": means[device], "others": others},
        advice.calibrate(run),
    )
