"""Claims about how many devices lead and how many are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapsl_reproduction.report.claims.claim import NOT_MEASURED, Claim, Part
from gapsl_reproduction.report.claims.comparing import RANK_MARGIN, ahead, best_of, signed
from gapsl_reproduction.report.claims.deciding import State, at_least, at_most
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.selection import best_fixed, dispersions
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.ranks import rank_correlation

GROWS = 0.5  # rank correlation of the best share with the epoch
FALLS = -0.5  # rank correlation of accuracy with dispersion

Parts = Callable[[Evidence], Sequence[Part]]


def fixed(evidence: Evidence, sweep: str) -> dict[str, Place]:
    """Return the places of GAPSL with something fixed, by point of a sweep, as far as there are runs."""
    places = {at: Place("gapsl", sweep=sweep, at=at) for at in evidence.sweep(sweep)}
    return {at: place for at, place in places.items() if evidence.runs(place)}


def intermediate(sweep: str, unit: str) -> Parts:
    """Return the parts of a claim that the best is neither the smallest nor the largest."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        names = evidence.sweep(sweep)
        found = fixed(evidence, sweep)
        best = best_of(evidence, {at: found[at] for at in names[1:-1] if at in found})
        if best is None:
            return [NOT_MEASURED]
        return [
            ahead(
                evidence, found[best], Place("gapsl", sweep=sweep, at=end), f"{best}{unit} above {end}{unit}"
            )
            for end in (names[0], names[-1])
        ]

    return parts


def adaptive_is_best(sweep: str, unit: str) -> Parts:
    """Return the parts of a claim that nothing fixed is as good as the adaptive."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        found = fixed(evidence, sweep)
        best = best_of(evidence, found)
        if best is None:
            return [NOT_MEASURED]
        return [ahead(evidence, Place("gapsl"), found[best], f"GAPSL above the best fixed one, {best}{unit}")]

    return parts


def best_ratio_grows(evidence: Evidence) -> Sequence[Part]:
    """See whether the best share of leaders grows over the evaluations."""
    best = best_fixed(evidence, "ratio")
    found = rank_correlation([epoch for epoch, _ in best], [ratio for _, ratio in best])
    if found is None:
        return [NOT_MEASURED]
    course = ", ".join(f"{ratio:g}" for _, ratio in best)
    text = f"best K by evaluation: {course}; rank correlation {signed(found, 2)}"
    return [Part(text, at_least({0: found}, GROWS, RANK_MARGIN), 1)]


def best_threshold_changes(evidence: Evidence) -> Sequence[Part]:
    """See whether the best threshold is the same at every evaluation."""
    best = best_fixed(evidence, "threshold")
    if len(best) < 2:
        return [NOT_MEASURED]
    course = ", ".join(f"{angle:g}°" for _, angle in best)
    changes = len({angle for _, angle in best}) > 1
    return [Part(f"best threshold by evaluation: {course}", State.of(changes), 1)]


def falls_with_dispersion(evidence: Evidence) -> Sequence[Part]:
    """Correlate accuracy with dispersion over all runs of a method, whatever their skew."""
    found = []
    for line in ("psl", "gapsl"):
        by_alpha = dispersions(evidence, line).values()
        runs = [run for own in by_alpha for run in own]
        value = rank_correlation([spread for spread, _ in runs], [reached for _, reached in runs])
        if value is None:
            found.append(Part(f"{line_name(line)}: not measured", State.MISSING))
        else:
            text = f"{line_name(line)}, {len(runs)} runs: rank correlation {signed(value, 2)}"
            found.append(Part(text, at_most({0: value}, FALLS, RANK_MARGIN), min(map(len, by_alpha))))
    return found


CLAIMS = (
    Claim(
        "intermediate-ratio",
        "An intermediate share of leaders (K) is best",
        "Fig. 8a",
        "CIFAR-10, alpha 0.1: the K between that is best on the validation split is above the smallest "
        "and above the largest.",
        intermediate("ratio", ""),
    ),
    Claim(
        "best-ratio-grows",
        "The best K grows over the epochs",
        "Fig. 8b, 10b",
        f"Spearman's rank correlation of the best fixed K with the evaluation is {GROWS:g} or above.",
        best_ratio_grows,
    ),
    Claim(
        "adaptive-ratio",
        "Fixed K are inadequate: the adaptive one is better",
        "Section III-B, Fig. 8",
        "CIFAR-10, alpha 0.1: GAPSL above the fixed K that is best on the validation split.",
        adaptive_is_best("ratio", ""),
    ),
    Claim(
        "falls-with-dispersion",
        "Accuracy falls as the dispersion of the scores grows",
        "Fig. 10a",
        f"CIFAR-10, runs at all alphas: Spearman's rank correlation is {signed(FALLS)} or below.",
        falls_with_dispersion,
    ),
    Claim(
        "intermediate-threshold",
        "An intermediate angular threshold is best",
        "Fig. 13a",
        "CIFAR-10, alpha 0.1: the threshold between that is best on the validation split is above the "
        "smallest and above the largest.",
        intermediate("threshold", "°"),
    ),
    Claim(
        "best-threshold-changes",
        "The best threshold changes over the epochs",
        "Fig. 13b",
        "It is not the same at every evaluation.",
        best_threshold_changes,
    ),
    Claim(
        "adaptive-threshold",
        "Fixed thresholds are limited: the adaptive one is better",
        "Section III-C, Fig. 13",
        "CIFAR-10, alpha 0.1: GAPSL above the fixed threshold that is best on the validation split.",
        adaptive_is_best("threshold", "°"),
    ),
)
