"""Claims about how many devices lead and how many are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapsl.experiments.report.claims.claim import Claim, Part
from gapsl.experiments.report.claims.comparing import difference_part, signed
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.figures.selection import best_fixed, dispersions
from gapsl.experiments.report.measures import accuracy, by_seed
from gapsl.experiments.report.naming import line_name
from gapsl.experiments.report.ranks import rank_correlation
from gapsl.experiments.report.spread import Values, estimate, minus

GROWS = 0.5  # rank correlation of the best share with the epoch
FALLS = -0.5  # rank correlation of accuracy with dispersion

Parts = Callable[[Evidence], Sequence[Part]]


def fixed_values(evidence: Evidence, sweep: str) -> dict[str, Values]:
    """Return the accuracies of GAPSL with something fixed, by point of a sweep, as far as there are any."""
    found = {
        at: by_seed(evidence.runs(Place("gapsl", sweep=sweep, at=at)), accuracy)
        for at in evidence.sweep(sweep)
    }
    return {at: values for at, values in found.items() if values}


def mean(values: Values) -> float:
    """Return the mean of what is there."""
    found = estimate(values)
    return float("-inf") if found is None else found.mean


def intermediate(sweep: str, unit: str) -> Parts:
    """Return the parts of a claim that the best is neither the smallest nor the largest."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        names = evidence.sweep(sweep)
        found = fixed_values(evidence, sweep)
        inner = {at: found[at] for at in names[1:-1] if at in found}
        if not inner:
            return [Part("not measured", None)]
        best = max(inner, key=lambda at: mean(inner[at]))
        return [
            difference_part(f"{best}{unit} above {end}{unit}", minus(inner[best], found.get(end, {})))
            for end in (names[0], names[-1])
        ]

    return parts


def adaptive_is_best(sweep: str, unit: str) -> Parts:
    """Return the parts of a claim that nothing fixed is as good as the adaptive."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        own = by_seed(evidence.runs(Place("gapsl")), accuracy)
        found = fixed_values(evidence, sweep)
        if not found:
            return [Part("not measured", None)]
        best = max(found, key=lambda at: mean(found[at]))
        return [difference_part(f"GAPSL above the best fixed one, {best}{unit}", minus(own, found[best]))]

    return parts


def best_ratio_grows(evidence: Evidence) -> Sequence[Part]:
    """See whether the best share of leaders grows over the evaluations."""
    best = best_fixed(evidence, "ratio")
    found = rank_correlation([epoch for epoch, _ in best], [ratio for _, ratio in best])
    if found is None:
        return [Part("not measured", None)]
    course = ", ".join(f"{ratio:g}" for _, ratio in best)
    return [Part(f"best K by evaluation: {course}; rank correlation {signed(found, 2)}", found >= GROWS, 1)]


def best_threshold_changes(evidence: Evidence) -> Sequence[Part]:
    """See whether the best threshold is the same at every evaluation."""
    best = best_fixed(evidence, "threshold")
    if len(best) < 2:
        return [Part("not measured", None)]
    course = ", ".join(f"{angle:g}°" for _, angle in best)
    return [Part(f"best threshold by evaluation: {course}", len({angle for _, angle in best}) > 1, 1)]


def falls_with_dispersion(evidence: Evidence) -> Sequence[Part]:
    """Correlate accuracy with dispersion over all runs of a method, whatever their skew."""
    found = []
    for line in ("psl", "gapsl"):
        runs = [run for own in dispersions(evidence, line).values() for run in own]
        value = rank_correlation([spread for spread, _ in runs], [reached for _, reached in runs])
        if value is None:
            found.append(Part(f"{line_name(line)}: not measured", None))
        else:
            text = f"{line_name(line)}, {len(runs)} runs: rank correlation {signed(value, 2)}"
            found.append(Part(text, value <= FALLS))
    return found


CLAIMS = (
    Claim(
        "intermediate-ratio",
        "An intermediate share of leaders (K) is best",
        "Fig. 8a",
        "CIFAR-10, alpha 0.1: the best K between is above the smallest and above the largest.",
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
        "CIFAR-10, alpha 0.1: GAPSL above the best fixed K.",
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
        "CIFAR-10, alpha 0.1: the best threshold between is above the smallest and above the largest.",
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
        "CIFAR-10, alpha 0.1: GAPSL above the best fixed threshold.",
        adaptive_is_best("threshold", "°"),
    ),
)
