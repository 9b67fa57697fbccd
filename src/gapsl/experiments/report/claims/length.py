"""Whether what everything is compared with has converged: SFL, trained longer."""

from __future__ import annotations

from collections.abc import Sequence

from gapsl.experiments.catalogue.contents import OVER_LENGTH
from gapsl.experiments.report.claims.claim import Claim, Part
from gapsl.experiments.report.claims.comparing import ahead, lead, told
from gapsl.experiments.report.claims.deciding import State, at_most
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.naming import line_name
from gapsl.experiments.report.spread import Values

LITTLE = 2.0  # points that a longer run may still gain


def lengths(evidence: Evidence) -> tuple[str, str, str]:
    """Return the length of all other runs, the longest of the sweep, and what they are counted in."""
    sweep = evidence.scale.sweeps["length"]
    (unit,) = {unit for settings in sweep.values() for unit in settings}
    own = str(evidence.scale.workloads["cifar10"].settings.get(unit))
    return own, max(sweep, key=int), unit


def gain(evidence: Evidence, line: str) -> Values:
    """Return what a line gains if it is trained longer, by seed."""
    own, longest, _ = lengths(evidence)
    return lead(evidence, *(Place(line, sweep="length", at=at) for at in (longest, own)))


def has_converged(evidence: Evidence) -> Sequence[Part]:
    """See how much SFL gains from a longer run, with what the others gain beside it."""
    own, longest, unit = lengths(evidence)
    if own == longest:
        return [Part("nothing longer is run", State.UNJUDGED, why="nothing is run for longer")]
    gains = {line: gain(evidence, line) for line in OVER_LENGTH}
    each = ", ".join(f"{line_name(line)} {told(values)}" for line, values in gains.items())
    # The points that may be gained are a margin already: with few seeds the mean has no other.
    state = at_most(gains["sfl"], LITTLE, margin=0.0)
    return [Part(f"gained from {own} to {longest} {unit}: {each}", state, len(gains["sfl"]))]


def leads_in_the_longest(evidence: Evidence) -> Sequence[Part]:
    """Compare what is recommended with the others where all are trained longest."""
    _, longest, unit = lengths(evidence)
    ours, *others = (
        Place(line, sweep="length", at=longest) for line in ("recommended", "sfl", "frozen", "psl")
    )
    return [
        ahead(evidence, ours, other, f"after {longest} {unit}, recommended above {line_name(other.line)}")
        for other in others
    ]


LONGEST = Claim(
    "leads-in-the-longest",
    "The recommended settings lead in longer runs, too",
    "",
    "CIFAR-10, alpha 0.1: above SFL, frozen halves and PSL in the longest runs of `length`, with the rates "
    "that were chosen at the usual length.",
    leads_in_the_longest,
)
CONVERGED = Claim(
    "sfl-has-converged",
    "SFL has clearly converged",
    "",
    f"CIFAR-10, alpha 0.1: it gains less than {LITTLE:g} points in the longest runs of `length`, each "
    "length with a schedule of its own.",
    has_converged,
)
