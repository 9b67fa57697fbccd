"""Comparisons that claims are made of: one line against another, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable

from gapsl.experiments.report.claims.claim import Part
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.measures import accuracy, by_seed
from gapsl.experiments.report.naming import line_name, seeds_name
from gapsl.experiments.report.spread import Values, above_zero, estimate, interval, minus

MARGIN = 2.0  # points (or degrees) that count with fewer seeds than an interval takes
RIVALS = ("sfl", "epsl", "vanilla", "psl")  # of GAPSL, in the paper

# The rule of every comparison, in words.
RULE = (
    "A difference counts if the 95 % interval over seeds (paired) leaves out zero; "
    f"with one or two seeds, if it is more than {MARGIN:g} points."
)


def signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, a real minus sign among them."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def told(values: Values, unit: str = "") -> str:
    """Return a mean difference with its interval, or its values where there are too few for one."""
    found = estimate(values)
    if found is None:
        return "not measured"
    span = interval(values)
    mean = f"{signed(found.mean)}{unit}"
    if span is not None:
        return f"{mean} ({signed(span[0])} to {signed(span[1])}; {seeds_name(found.seeds)})"
    if found.seeds > 1:
        each = ", ".join(signed(value) for value in values.values())
        return f"{mean} ({each}; {seeds_name(found.seeds)})"
    return f"{mean} ({seeds_name(found.seeds)})"


def difference_part(text: str, values: Values, margin: float = MARGIN, unit: str = "") -> Part:
    """Return a part that is so if differences are above zero."""
    return Part(f"{text}: {told(values, unit)}", above_zero(values, margin), len(values))


def ahead(evidence: Evidence, first: Place, second: Place, text: str = "") -> Part:
    """Return whether one place is above another."""
    own, other = (by_seed(evidence.runs(place), accuracy) for place in (first, second))
    name = text or f"{line_name(first.line)} above {line_name(second.line)}"
    return difference_part(name, minus(own, other))


def ahead_of_all(evidence: Evidence, place: Place, others: Iterable[Place], where: str) -> Part:
    """Return whether a place is above the best of others that share a seed with it."""
    own = by_seed(evidence.runs(place), accuracy)
    differences = {}
    for other in others:
        found = minus(own, by_seed(evidence.runs(other), accuracy))
        if found:
            differences[other.line] = found
    if not differences:
        return Part(f"{where}: not measured", None)
    # The best rival is the one that it is least ahead of.
    best = min(differences, key=lambda line: sum(differences[line].values()) / len(differences[line]))
    text = f"{where}: {line_name(place.line)} above the best of the others, {line_name(best)}"
    return difference_part(text, differences[best])


def at_most(text: str, values: Values, limit: float) -> Part:
    """Return whether the mean of some numbers is not above a limit."""
    found = estimate(values)
    if found is None:
        return Part(f"{text}: not measured", None)
    return Part(f"{text}: {told(values)}", found.mean <= limit, found.seeds)


def within(text: str, values: Values, limit: float) -> Part:
    """Return whether the mean of some numbers is no further from zero than a limit."""
    found = estimate(values)
    if found is None:
        return Part(f"{text}: not measured", None)
    return Part(f"{text}: {told(values)}", abs(found.mean) <= limit, found.seeds)


def at_least(text: str, values: Values, limit: float) -> Part:
    """Return whether the mean of some numbers is not below a limit."""
    found = estimate(values)
    if found is None:
        return Part(f"{text}: not measured", None)
    return Part(f"{text}: {told(values)}", found.mean >= limit, found.seeds)
