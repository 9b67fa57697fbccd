"""Whether the run learns: the length of gradients, loss and accuracy over the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Advice, Finding, Severity, percent, times
from gapsl.analysis.diagnose.run import Run
from gapsl.run.evaluation import MARGIN, WINDOW

PARTS = 5  # the start and the end of a series are a fifth of it each
LEAST = 10  # values below which a trend would be noise
# Against the first round, before anything was learned. In runs that go well gradients grow up to 25 times.
GREW = 100.0
BLEW_UP = 1000.0
STUCK = 0.95  # of the first loss; a model that learns anything is below it after a few epochs
ROSE = 1.5  # times the lowest: batches alone move a smoothed loss less
ROSE_LEAST = 0.1  # nats; a loss near zero doubles for nothing
PEAK = 1.5  # times the first loss: steps too large, not too small
EARLY = 2.0  # epochs; before that a deep model's loss may take its time
GUESSING = 0.05  # of the way from guessing to perfect: what a small test set adds by luck
LEARNED = 0.2  # of the same way: a run that is there learns, whatever its loss does
FELL = 0.05  # of accuracy, which smoothing does not explain


def well(run: Run) -> bool:
    """Say whether accuracy rises, or is good and has not fallen: then no number is to be complained about."""
    rises = rise(run) is not None and knows(run, GUESSING)
    return rises or (knows(run, LEARNED) and drop(run) is None)


def knows(run: Run, share: float) -> bool:
    """Say whether accuracy is this share of the way from guessing to perfect."""
    last, chance = run.last, run.chance
    return last is not None and chance is not None and last.device_mean >= chance + share * (1 - chance)


def rise(run: Run) -> tuple[int, float, float] | None:
    """Return how accuracy still rises: a number of evaluations, their mean, and that of as many before."""
    curve = [evaluation.device_mean for evaluation in run.evaluations]
    width = min(WINDOW, len(curve) // 2)
    if width < 2:
        return None
    before, now = statistics.mean(curve[-2 * width : -width]), statistics.mean(curve[-width:])
    return (width, now, before) if now - before >= MARGIN else None


def drop(run: Run) -> tuple[int, float, float] | None:
    """Return the round in which smoothed accuracy was best, what it was, and what it is, if it fell."""
    curve = [evaluation.device_mean for evaluation in run.evaluations]
    if len(curve) <= WINDOW:
        return None
    smooth = [statistics.mean(curve[max(0, i + 1 - WINDOW) : i + 1]) for i in range(len(curve))]
    best = max(range(len(smooth)), key=lambda i: smooth[i])
    if smooth[best] - smooth[-1] < FELL:
        return None
    return run.evaluations[best].round, smooth[best], smooth[-1]


def ends(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the medians of the first and the last fifth; None where there are too few values."""
    if len(values) < LEAST:
        return None
    width = len(values) // PARTS
    return statistics.median(values[:width]), statistics.median(values[-width:])


def exploding(run: Run) -> Finding | None:
    """Compare the longest gradients of a run that does not learn with the first."""
    norms = {r.round: statistics.median(r.norms.values()) for r in run.records if r.norms}
    start = next((norm for norm in norms.values() if norm > 0), None)
    if start is None or well(run):
        return None
    peak = max(norms, key=lambda round: norms[round])
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
        advice.slower(run),
        breaks=growth >= BLEW_UP,
    )


def not_learning(run: Run) -> Finding | None:
    """Look at loss and accuracy together: one finding, the first that explains the others."""
    if well(run):
        return None
    return rising_loss(run) or stuck_loss(run) or accuracy_fell(run) or guessing(run)


def rising_loss(run: Run) -> Finding | None:
    """Say that the loss has been lower."""
    rounds, values = list(run.losses), list(run.losses.values())
    if len(values) < LEAST:
        return None
    width = len(values) // PARTS
    smooth = [sum(values[i : i + width]) / width for i in range(len(values) - width + 1)]
    lowest = min(range(len(smooth)), key=lambda i: smooth[i])
    low, last = smooth[lowest], smooth[-1]
    if last < ROSE * low or last - low < ROSE_LEAST:
        return None
    above, where = last > values[0], rounds[lowest + width // 2]
    return Finding(
        "loss-rising",
        Severity.TROUBLE if above else Severity.WATCH,
        "The training loss is rising",
        f"It was {low:.3g} around round {where} and is {last:.3g} now"
        f"{', above where it began' if above else ''}: the steps are too large, or the devices undo each "
        "other's work.",
        {"lowest": low, "round": where, "end": last},
        advice.slower(run),
        breaks=above,
    )


def stuck_loss(run: Run) -> Finding | None:
    """Say that the loss is where it began."""
    values = list(run.losses.values())
    found = ends(values)
    if found is None or found[1] < STUCK * values[0]:
        return None
    peak = max(values)
    hot = peak > PEAK * values[0]
    why = (
        f"It went up to {peak:.3g} on the way: the steps are too large."
        if hot
        else "It never rose much on the way: the steps may be too small."
    )
    return Finding(
        "loss-stuck",
        Severity.WATCH if run.records[-1].epoch < EARLY else Severity.TROUBLE,
        "The training loss does not fall",
        f"It is {found[1]:.3g} after {len(run.records)} rounds and was {values[0]:.3g} in the first. {why}",
        {"start": values[0], "end": found[1], "peak": peak},
        advice.slower(run) if hot else advice.rates(run, advice.STEP),
    )


def guessing(run: Run) -> Finding | None:
    """Say that accuracy is that of guessing."""
    last, chance = run.last, run.chance
    if last is None or chance is None or chance == 1 or knows(run, GUESSING):
        return None
    epoch, early = run.records[-1].epoch, not run.finished or run.records[-1].epoch < EARLY
    text = f"The devices' mean accuracy on the {last.split} set is {percent(last.device_mean)}, that of "
    text += f"guessing {percent(chance)}."
    tried: tuple[Advice, ...] = ()
    if not early:
        tried = (*advice.recommended(run), *advice.slower_devices(run), *advice.other_methods(run))
    elif run.finished:
        text += f" Training lasted only {epoch:.1f} epochs."
        tried = advice.longer(run)
    else:
        text += f" It is only round {run.records[-1].round} of {run.total_rounds}."
    return Finding(
        "guessing",
        Severity.WATCH if early else Severity.TROUBLE,
        "Accuracy is no better than guessing",
        text,
        {"device_mean": last.device_mean, "chance": chance},
        tried,
    )


def accuracy_fell(run: Run) -> Finding | None:
    """Say that accuracy was better before."""
    found = drop(run)
    if found is None:
        return None
    round, best, now = found
    collapsed = not knows(run, GUESSING)
    return Finding(
        "accuracy-fell",
        Severity.TROUBLE if collapsed else Severity.WATCH,
        "Accuracy has collapsed to guessing" if collapsed else "Accuracy was better before",
        f"It was {percent(best)} in round {round} and is {percent(now)} now (over {WINDOW} evaluations).",
        {"best": best, "round": round, "end": now},
        advice.rates(run, 1 / advice.STEP),
    )


def still_rising(run: Run) -> Finding | None:
    """Say that more rounds would help."""
    found = rise(run)
    if found is None:
        return None
    width, now, before = found
    return Finding(
        "still-rising",
        Severity.INFO,
        "Accuracy is still rising",
        f"The last {width} evaluations are at {percent(now)}, the {width} before at {percent(before)}: "
        + ("more rounds would help." if run.finished else "let it go on."),
        {"before": before, "end": now},
        advice.longer(run) if run.finished else (),
    )
