"""Whether the run learns: finite numbers, the length of gradients, loss and accuracy over the rounds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from gapsl.analysis.diagnose import advice
from gapsl.analysis.diagnose.finding import Advice, Finding, Severity, counted, percent, times
from gapsl.analysis.diagnose.run import Run
from gapsl.run.evaluation import MARGIN, WINDOW

PARTS = 5  # the start and the end of a series are a fifth of it each
LEAST = 10  # values below which a trend would be noise
OFTEN = 0.01  # of the rounds with a device skipped: more is no accident of one batch
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


def ends(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the medians of the first and the last fifth; None where there are too few values."""
    if len(values) < LEAST:
        return None
    width = len(values) // PARTS
    return statistics.median(values[:width]), statistics.median(values[-width:])


def not_finite(run: Run) -> Finding | None:
    """Count the devices that were skipped because their loss or gradient was not finite."""
    skipped = [record for record in run.records if record.skipped]
    if not skipped:
        return None
    counts = Counter(device for record in skipped for device in record.skipped)
    who = sorted(counts, key=lambda d: (-counts[d], d))
    nobody = [record.round for record in skipped if not record.present - set(record.skipped)]
    last = run.records[-1]
    bad = bool(nobody or last.skipped) or len(skipped) > OFTEN * len(run.records)
    text = (
        f"In {len(skipped)} of {len(run.records)} rounds, first in round {skipped[0].round}, a loss or "
        f"gradient was NaN or infinite and the device was skipped: {counted('device', who)}."
    )
    if nobody:
        text += f" In round {nobody[0]} no device was left."
    if last.skipped and not run.finished:
        text += f" The run ends with it, in round {last.round} of {run.total_rounds}."
    if len(counts) <= max(1, len(last.present) // 5):
        text += " It is the same few each time: look at their inputs too."
    return Finding(
        "not-finite",
        Severity.TROUBLE if bad else Severity.WATCH,
        "Devices were skipped because their numbers were not finite",
        text,
        {"rounds": len(skipped), "first": skipped[0].round, "by_device": dict(sorted(counts.items()))},
        advice.slower(run),
        breaks=bool(nobody),
    )


def exploding(run: Run) -> Finding | None:
    """Compare the longest gradients with the first."""
    norms = {r.round: statistics.median(r.norms.values()) for r in run.records if r.norms}
    start = next((norm for norm in norms.values() if norm > 0), None)
    if start is None:
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
    """Look at loss and accuracy together: a run whose accuracy rises, or is good, is left in peace."""
    if rise(run) is not None:
        return None
    if knows(run, LEARNED) and drop(run) is None:
        return None
    return rising_loss(run) or stuck_loss(run) or guessing(run) or accuracy_fell(run)


def knows(run: Run, share: float) -> bool:
    """Say whether accuracy is this share of the way from guessing to perfect."""
    return (
        run.last is not None and run.chance is not None and run.last.device_mean >= level(run.chance, share)
    )


def level(chance: float, share: float) -> float:
    """Return the accuracy that is a share of the way from guessing to perfect."""
    return chance + share * (1 - chance)


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
    peak, round = max(values), run.records[-1].round
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
        f"It is {found[1]:.3g} after {round} rounds and was {values[0]:.3g} in the first. {why}",
        {"start": values[0], "end": found[1], "peak": peak},
        advice.slower(run) if hot else advice.faster(run),
    )


def guessing(run: Run) -> Finding | None:
    """Say that accuracy is that of guessing, and whether it has been better."""
    last, chance = run.last, run.chance
    if last is None or chance is None or chance == 1 or knows(run, GUESSING):
        return None
    best = max(run.evaluations, key=lambda evaluation: evaluation.device_mean)
    collapsed = best.device_mean >= level(chance, LEARNED)
    epoch, round = run.records[-1].epoch, run.records[-1].round
    early = not collapsed and (not run.finished or epoch < EARLY)
    text = f"A device is right in {percent(last.device_mean)} of the {last.split} set, guessing in "
    text += percent(chance)
    text += f"; in round {best.round} it was {percent(best.device_mean)}." if collapsed else "."
    tried: tuple[Advice, ...] = ()
    if collapsed:
        tried = advice.slower(run)
    elif not early:
        tried = (*advice.recommended(run), *advice.slower_devices(run), *advice.other_methods(run))
    elif run.finished:
        text += f" Training lasted only {epoch:.1f} epochs."
        tried = advice.longer(run)
    else:
        text += f" It is only round {round} of {run.total_rounds}."
    return Finding(
        "collapsed" if collapsed else "guessing",
        Severity.WATCH if early else Severity.TROUBLE,
        "Accuracy has collapsed to guessing" if collapsed else "Accuracy is no better than guessing",
        text,
        {"device_mean": last.device_mean, "chance": chance, "best": best.device_mean},
        tried,
    )


def accuracy_fell(run: Run) -> Finding | None:
    """Say that accuracy was better before."""
    found = drop(run)
    if found is None:
        return None
    round, best, now = found
    return Finding(
        "accuracy-fell",
        Severity.WATCH,
        "Accuracy was better before",
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
        Severity.WATCH if run.finished else Severity.INFO,
        "Accuracy is still rising",
        f"The last {width} evaluations are at {percent(now)}, the {width} before at {percent(before)}: "
        + ("training ended too early." if run.finished else "let it go on."),
        {"before": before, "end": now},
        advice.longer(run) if run.finished else (),
    )
