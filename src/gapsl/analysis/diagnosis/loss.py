"""The training loss: whether it falls."""

from __future__ import annotations

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Finding, Severity
from gapsl.analysis.diagnosis.trend import LEAST, PARTS, ends

STUCK = 0.95  # of the first loss; a model that learns anything is below it after a few epochs
ROSE = 1.5  # times the lowest: batches alone move a smoothed loss less
ROSE_LEAST = 0.1  # nats; a loss near zero doubles for nothing
PEAK = 1.5  # times the first loss: steps too large, not too small
EARLY = 2.0  # epochs; before that a deep model's loss may take its time


def stuck(run: Evidence) -> Finding | None:
    """Say that the loss is where it began."""
    losses = finite_losses(run)
    found = ends(list(losses.values()))
    start = next(iter(losses.values()), 0.0)
    if found is None or not STUCK * start <= found[1] <= ROSE * start:  # beyond that it rises
        return None
    peak = max(losses.values())
    hot = peak > PEAK * start
    why = (
        f"It went up to {peak:.3g} on the way: the steps are too large."
        if hot
        else "It never rose much on the way: the steps may be too small."
    )
    return Finding(
        "loss-stuck",
        Severity.WATCH if run.rounds[-1].epoch < EARLY else Severity.TROUBLE,
        "The training loss does not fall",
        f"It is {found[1]:.3g} after {run.rounds[-1].number} rounds and was {start:.3g} in the first. {why}",
        {"start": start, "end": found[1], "peak": peak},
        advice.slower(run) if hot else advice.faster(run),
    )


def rising(run: Evidence) -> Finding | None:
    """Say that the loss has been lower."""
    losses = finite_losses(run)
    if len(losses) < LEAST:
        return None
    numbers, values = list(losses), list(losses.values())
    width = len(values) // PARTS
    smooth = [sum(values[i : i + width]) / width for i in range(len(values) - width + 1)]
    lowest = min(range(len(smooth)), key=lambda i: smooth[i])
    low, last = smooth[lowest], smooth[-1]
    if last < ROSE * low or last - low < ROSE_LEAST:
        return None
    above = last > values[0]
    return Finding(
        "loss-rising",
        Severity.TROUBLE if above else Severity.WATCH,
        "The training loss is rising",
        f"It was {low:.3g} around round {numbers[lowest + width // 2]} and is {last:.3g} now"
        f"{', above where it began' if above else ''}: the steps are too large, or the devices undo each "
        "other's work.",
        {"lowest": low, "round": numbers[lowest + width // 2], "end": last},
        (*advice.slower(run), *advice.clip(run)),
        breaks=above,
    )


def finite_losses(run: Evidence) -> dict[int, float]:
    """Return the loss by round, where any device had one."""
    return {round.number: round.loss for round in run.rounds if round.loss is not None}
