"""Comparisons that claims are made of: one line against another, seed by seed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from gapsl_reproduction.report.claims.claim import Part
from gapsl_reproduction.report.claims.deciding import MARGIN, State, above_zero, at_least
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import accuracy, by_seed, validation_accuracy
from gapsl_reproduction.report.naming import line_name, seeds_name
from gapsl_reproduction.report.spread import Values, estimate, interval, minus

Name = TypeVar("Name", bound=Hashable)

RIVALS = ("sfl", "epsl", "vanilla", "psl")  # of GAPSL, in the paper
RANK_MARGIN = 0.2  # on either side of a rank correlation that has no interval

# The rule of every comparison, in words.
RULE = (
    "A comparison is a *yes* if the 95 % interval of the differences (paired by seed) lies wholly on the "
    "side that is claimed, of zero or of the limit that is named; a *no* if nothing of it lies there; and "
    "*undecided* if it reaches across. With one or two seeds there is no interval, and the mean ± "
    f"{MARGIN:g} points (± {RANK_MARGIN:g} for a rank correlation) stands for it."
)


def signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, a real minus sign among them."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def told(values: Values, unit: str = "", digits: int = 1) -> str:
    """Return a mean difference with its interval, or its values where there are too few for one."""
    found = estimate(values)
    if found is None:
        return "not measured"
    span = interval(values)
    mean = f"{signed(found.mean, digits)}{unit}"
    if span is not None:
        low, high = (signed(end, digits) for end in span)
        return f"{mean} ({low} to {high}; {seeds_name(found.seeds)})"
    if found.seeds > 1:
        each = ", ".join(signed(value, digits) for value in values.values())
        return f"{mean} ({each}; {seeds_name(found.seeds)})"
    return f"{mean} ({seeds_name(found.seeds)})"


def difference_part(text: str, values: Values, margin: float = MARGIN, unit: str = "") -> Part:
    """Return a part that is so if differences are above zero."""
    return Part(f"{text}: {told(values, unit)}", above_zero(values, margin), len(values))


def margin_part(text: str, values: Values, limit: float) -> Part:
    """Return a part that is so if differences are not below a limit."""
    return Part(f"{text}: {told(values)}", at_least(values, limit), len(values))


def ahead(evidence: Evidence, first: Place, second: Place, text: str = "") -> Part:
    """Return whether one place is above another."""
    name = text or f"{line_name(first.line)} above {line_name(second.line)}"
    return difference_part(name, lead(evidence, first, second))


def lead(evidence: Evidence, first: Place, second: Place) -> Values:
    """Return how far one place is above another, by seed."""
    return minus(*(by_seed(evidence.runs(place), accuracy) for place in (first, second)))


def ahead_of_all(evidence: Evidence, place: Place, others: Sequence[Place], where: str) -> Part:
    """Return whether a place is above the best of others."""
    best = best_of(evidence, {other: other for other in others})
    if best is None:
        return Part(f"{where}: not measured", State.MISSING)
    text = f"{where}: {line_name(place.line)} above the best of the others, {line_name(best.line)}"
    return difference_part(text, lead(evidence, place, best))


def best_of(evidence: Evidence, places: Mapping[Name, Place]) -> Name | None:
    """Return which of several places is the best, None if none has been run."""
    return next(iter(in_order(evidence, places)), None)


def in_order(evidence: Evidence, places: Mapping[Name, Place]) -> list[Name]:
    """Return those of several places that have been run, the best first: on the validation split.

    What is then compared on the test set was not chosen for its luck there. Where nothing is held out, as in
    the paper's own setting, there is nothing else to choose by. The seeds are those that all share.
    """
    shared = evidence.paired(places.values())
    for measure in (validation_accuracy, accuracy):
        found = {
            name: each.mean
            for name, place in places.items()
            if (each := estimate(by_seed(shared.runs(place), measure))) is not None
        }
        if found:
            return sorted(found, key=lambda name: -found[name])
    return []
