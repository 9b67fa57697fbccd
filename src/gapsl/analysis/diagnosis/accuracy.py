"""Accuracy: whether it still rises, has fallen, or leaves devices or classes behind."""

from __future__ import annotations

import statistics

from gapsl.analysis.diagnosis import advice
from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.exclusion import FEW, kept_shares
from gapsl.analysis.diagnosis.finding import Advice, Finding, Severity
from gapsl.analysis.diagnosis.loss import EARLY, rising, stuck
from gapsl.analysis.diagnosis.wording import capital, classes, label_mix, percent, points
from gapsl.run.convergence import MARGIN, WINDOW

GUESSING = 0.05  # of the way from guessing to perfect: what a small test set adds by luck
LEARNED = 0.2  # of the same way: below it nothing can collapse, and no class is expected to be known
FELL = 0.05  # points that smoothing does not explain
BEHIND = 0.15  # the worst device below the mean; in runs that go well it is within 5 points
FAR_BEHIND = 0.3
UNKNOWN = 0.05  # accuracy of a class that is as good as never recognised
OWN_ONLY = 0.2  # accuracy on a device's own labels above that on everybody's


def smoothed(run: Evidence) -> list[tuple[int, float]]:
    """Return (round, accuracy) by evaluation, each averaged with the two before it."""
    curve = [(e.round, e.device_mean) for e in run.evaluations]
    return [
        (round, statistics.mean(value for _, value in curve[max(0, i + 1 - WINDOW) : i + 1]))
        for i, (round, _) in enumerate(curve)
    ]


def guessing(run: Evidence) -> Finding | None:
    """Say that accuracy is that of guessing, and whether it has been better."""
    last, chance = run.last, run.chance
    if last is None or chance is None or chance == 1:
        return None
    if last.device_mean >= chance + GUESSING * (1 - chance):
        return None
    best = max(run.evaluations, key=lambda e: e.device_mean)
    collapsed = best.device_mean >= chance + LEARNED * (1 - chance)
    right = percent(last.device_mean)
    text = f"A device is right in {right} of the {last.split} set, guessing in {percent(chance)}"
    text += f"; in round {best.round} it was {percent(best.device_mean)}." if collapsed else "."
    early = not collapsed and (not run.finished or run.rounds[-1].epoch < EARLY)
    if early and run.finished:
        text += f" Training lasted only {run.rounds[-1].epoch:.1f} epochs."
    elif early:
        text += f" It is only round {run.rounds[-1].number} of {run.total_rounds}."
    return Finding(
        "collapsed" if collapsed else "guessing",
        Severity.WATCH if early else Severity.TROUBLE,
        "Accuracy has collapsed to guessing" if collapsed else "Accuracy is no better than guessing",
        text,
        {
            "device_mean": last.device_mean,
            "chance": chance,
            "best": best.device_mean,
            "best_round": best.round,
        },
        against_guessing(run, collapsed=collapsed, early=early),
    )


def against_guessing(run: Evidence, *, collapsed: bool, early: bool) -> tuple[Advice, ...]:
    """Return what to try: where the loss does not fall either, what is said about the loss."""
    if early:
        return advice.longer(run) if run.finished else ()
    if (found := stuck(run) or rising(run)) is not None:
        return found.advice
    if collapsed:
        return advice.slower(run)
    return (*advice.recommended(run), *advice.slower_halves(run), *advice.other_methods(run))


def fallen(run: Evidence) -> Finding | None:
    """Say that accuracy was better before."""
    curve = smoothed(run)
    if len(curve) <= WINDOW or guessing(run) is not None:
        return None
    round, best = max(curve, key=lambda entry: entry[1])
    now = curve[-1][1]
    if best - now < FELL:
        return None
    return Finding(
        "accuracy-fell",
        Severity.WATCH,
        "Accuracy was better before",
        f"It was {percent(best)} in round {round} and is {percent(now)} now (over {WINDOW} evaluations).",
        {"best": best, "round": round, "end": now},
        (*advice.slower_halves(run), *advice.slower_server(run)),
    )


def still_rising(run: Evidence) -> Finding | None:
    """Say that more rounds would help."""
    curve = [e.device_mean for e in run.evaluations]
    width = min(WINDOW, len(curve) // 2)
    if width < 2:
        return None
    before, now = statistics.mean(curve[-2 * width : -width]), statistics.mean(curve[-width:])
    if now - before < MARGIN:
        return None
    return Finding(
        "still-rising",
        Severity.WATCH if run.finished else Severity.INFO,
        "Accuracy is still rising",
        f"The last {width} evaluations are at {percent(now)}, the {width} before at {percent(before)}: "
        + ("training ended too early." if run.finished else "let it go on."),
        {"before": before, "end": now},
        advice.longer(run) if run.finished else (),
    )


def worst_device(run: Evidence) -> Finding | None:
    """Look for a device far below the mean, and at what labels it has."""
    last = run.last
    if last is None:
        return None
    each = {device: own for device, own in enumerate(last.device_accuracy) if own is not None}
    if len(each) < 2:
        return None
    device, lowest = min(each.items(), key=lambda item: item[1])
    behind = last.device_mean - lowest
    if behind < BEHIND:
        return None
    text = f"It is right in {percent(lowest)} of the {last.split} set, {points(behind)} below the mean."
    if run.labels is not None and device < len(run.labels.counts):
        text += f" It has {label_mix(run.labels, device)}."
    kept = kept_shares(run).get(device)
    if kept is not None:
        text += f" It was kept in {percent(kept)} of its rounds."
    return Finding(
        "worst-device",
        Severity.TROUBLE if behind >= FAR_BEHIND else Severity.WATCH,
        f"Device {run.who(device)} does much worse than the rest",
        text,
        {"device": device, "accuracy": lowest, "device_mean": last.device_mean, "kept": kept},
        (
            *(advice.keep_more(run) if kept is not None and kept < FEW else ()),
            *advice.recommended(run),
            *advice.slower_halves(run),
        ),
    )


def unknown_classes(run: Evidence) -> Finding | None:
    """Look for classes that are as good as never recognised, where others are."""
    last = run.last
    if last is None or run.chance is None or last.device_mean < run.chance + LEARNED * (1 - run.chance):
        return None
    found = {c: a for c, a in enumerate(last.class_accuracy) if a is not None and a < UNKNOWN}
    if not found:
        return None
    worst = sorted(found, key=lambda c: found[c])
    text = (
        f"The devices recognise less than {percent(UNKNOWN)} of {'its' if len(worst) == 1 else 'their'} "
        f"samples on average, of all samples {percent(last.device_mean)}."
    )
    if run.labels is not None:
        counts = run.labels.counts[:, worst[0]]
        text += (
            f" {capital(classes(run, worst[:1]))} is on {int((counts > 0).sum())} of {len(counts)} devices "
            f"({percent(float(run.labels.pooled[worst[0]]))} of all samples)."
        )
    return Finding(
        "unknown-classes",
        Severity.WATCH,
        f"{capital(classes(run, worst))} {'is' if len(worst) == 1 else 'are'} hardly ever recognised",
        text,
        {"accuracy": {run.class_name(c): found[c] for c in worst}},
        (*advice.recommended(run), *advice.keep_more(run), *advice.slower_halves(run)),
    )


def own_labels_only(run: Evidence) -> Finding | None:
    """Compare accuracy on a device's own mix of labels with accuracy on everybody's."""
    last = run.last
    if last is None or last.local is None or last.local - last.device_mean < OWN_ONLY:
        return None
    return Finding(
        "own-labels-only",
        Severity.WATCH,
        "Devices know their own labels, not everybody's",
        f"On labels mixed like its own a device is right in {percent(last.local)}, on everybody's in "
        f"{percent(last.device_mean)}: it has learned which labels it usually sees.",
        {"local": last.local, "device_mean": last.device_mean},
        (*advice.recommended(run), *advice.slower_halves(run)),
    )
