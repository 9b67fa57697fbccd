"""How many devices lead and how many are kept: fixed shares and angles against the adaptive ones."""

from __future__ import annotations

from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.parts import (
    EPOCH,
    TEST_ACCURACY,
    courses,
    evaluated_on,
    mean_course,
    swept,
)
from gapsl_reproduction.report.looks import ADAPTIVE, MARKERS, Look, look_of, ordered_look
from gapsl_reproduction.report.measures import accuracy, by_seed, course, course_of, dispersion
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.panels import Curve, Dots, Lines, Picture
from gapsl_reproduction.report.spread import Estimate, estimate
from gapsl_reproduction.store import Result

GAPSL = Place("gapsl")
FIXED = Look("#444444", "o")


def selection_ratio(evidence: Evidence) -> Picture:
    """Return the accuracy with a fixed share of devices as leaders, at the end and over the epochs."""
    return fixed_against_adaptive(evidence, "ratio", "share of devices that lead (K)", "K = ")


def threshold(evidence: Evidence) -> Picture:
    """Return the accuracy where a fixed angle decides who is kept, at the end and over the epochs."""
    return fixed_against_adaptive(evidence, "threshold", "largest angle to the leader that is kept (°)", "")


def fixed_against_adaptive(evidence: Evidence, sweep: str, x_label: str, prefix: str) -> Picture:
    """Return a sweep of GAPSL beside GAPSL itself, of the same seeds."""
    names = evidence.sweep(sweep)
    suffix = "" if prefix else "°"
    places = {float(at): Place("gapsl", sweep=sweep, at=at) for at in names}
    evidence = evidence.paired([GAPSL, *places.values()])
    ticks = {float(at): at for at in names}
    curve, missing = swept(evidence, "fixed", FIXED, places, ticks, accuracy)
    if curve is None:  # the adaptive one alone shows nothing
        nothing = Lines("(a) at the end", x_label, TEST_ACCURACY, [], missing=missing)
        return Picture([nothing])
    adaptive = estimate(by_seed(evidence.runs(GAPSL), accuracy))
    level = None if adaptive is None else ("adaptive (GAPSL)", ADAPTIVE, adaptive)
    labelled = {
        (f"{prefix}{at}{suffix}", ordered_look(i, len(names))): places[float(at)]
        for i, at in enumerate(names)
    }
    curves, without = courses(evidence, {("adaptive (GAPSL)", ADAPTIVE): GAPSL, **labelled}, course)
    return Picture(
        [
            Lines(
                "(a) at the end",
                x_label,
                TEST_ACCURACY,
                [curve] if curve is not None else [],
                ticks=ticks,
                level=level,
                missing=missing if level else [*missing, "adaptive (GAPSL)"],
            ),
            Lines(
                "(b) over the epochs",
                EPOCH,
                evaluated_on(evidence, [GAPSL, *places.values()]),
                curves,
                missing=without,
            ),
        ]
    )


def dispersions(evidence: Evidence, line: str) -> dict[float, list[tuple[float, float]]]:
    """Return dispersion and accuracy of every run of a line, by alpha."""
    found: dict[float, list[tuple[float, float]]] = {}
    for alpha, place in evidence.over_alpha(line).items():
        for result in evidence.runs(place).values():
            spread = dispersion(result)
            if spread is not None:
                found.setdefault(alpha, []).append((spread, accuracy(result)))
    return found


def best_fixed(evidence: Evidence, sweep: str) -> list[tuple[float, float]]:
    """Return the point of a sweep with the best accuracy at each evaluation, by epoch."""
    places = {float(at): Place("gapsl", sweep=sweep, at=at) for at in evidence.sweep(sweep)}
    paired = evidence.paired(places.values())
    found = {at: mean_course(paired.runs(place), course) for at, place in places.items()}
    known = {at: (x, y) for at, (x, y) in found.items() if x}
    if len(known) < 2:
        return []
    length = min(len(x) for x, _ in known.values())
    epochs = next(iter(known.values()))[0]
    best = [max(known, key=lambda at: known[at][1][i].mean) for i in range(length)]
    return list(zip(epochs, best, strict=False))


def dispersion_figure(evidence: Evidence) -> Picture:
    """Return accuracy by dispersion of the scores, and the best fixed share over the epochs."""
    dots = {}
    missing = []
    for line in ("psl", "gapsl"):
        found = dispersions(evidence, line)
        for marker, alpha in zip(MARKERS, evidence.over_alpha(line), strict=False):
            label = f"{line_name(line)}, alpha {alpha:g}"
            if alpha in found:
                dots[label, Look(look_of(line).colour, marker)] = found[alpha]
            else:
                missing.append(label)
    best = best_fixed(evidence, "ratio")
    curves = (
        [Curve("best fixed K", FIXED, [x for x, _ in best], [Estimate(100 * y, None, 1) for _, y in best])]
        if best
        else []
    )
    fixed = [Place("gapsl", sweep="ratio", at=at) for at in evidence.sweep("ratio")]
    x, y = mean_course(evidence.paired([GAPSL, *fixed]).runs(GAPSL), adaptive_ratio)
    if x:
        curves.append(Curve("adaptive K (GAPSL)", ADAPTIVE, x, y))
    return Picture(
        [
            Dots(
                "(a) accuracy by dispersion",
                "standard deviation of the scores (°)",
                TEST_ACCURACY,
                dots,
                missing,
            ),
            Lines(
                "(b) the best share of leaders",
                EPOCH,
                "devices that lead (%)",
                curves,
                missing=[] if best else ["fixed shares"],
            ),
        ],
        says="(a) A dot a run. (b) The fixed share whose accuracy is "
        "best at that evaluation, and what GAPSL chooses by itself.",
    )


def adaptive_ratio(result: Result) -> list[tuple[float, float]]:
    """Return the share of leaders that GAPSL chose over the epochs, in percent."""
    return course_of(result, "ratio", 100)
