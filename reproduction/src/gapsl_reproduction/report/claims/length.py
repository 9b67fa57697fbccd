"""Whether what everything is compared with has converged: SFL, trained longer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gapsl_reproduction.catalogue.contents import OVER_LENGTH
from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.comparing import ahead, lead, told
from gapsl_reproduction.report.claims.deciding import State, at_most
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.spread import Values

NOTHING_LONGER = Part("nothing longer is run", State.UNJUDGED, why="nothing is run for longer")
LITTLE = 2.0  # points that a longer run may still gain


def lengths(evidence: Evidence) -> tuple[list[str], str]:
    """Return the lengths of training from that of all other runs on, and what they are counted in."""
    sweep = evidence.scale.sweeps["length"]
    (unit,) = {unit for settings in sweep.values() for unit in settings}
    own = int(evidence.scale.workloads["cifar10"].settings[unit])
    return sorted((at for at in sweep if int(at) >= own), key=int), unit


def trained(line: str, length: str) -> Place:
    """Return a line's place at a length of training."""
    return Place(line, sweep="length", at=length)


def gain(evidence: Evidence, line: str, shorter: str, longer: str) -> Values:
    """Return what a line gains if it is trained longer, by seed."""
    return lead(evidence, trained(line, longer), trained(line, shorter))


def has_converged(evidence: Evidence) -> Sequence[Part]:
    """See how much SFL gains from length to length, with what the others gain beside it."""
    found, unit = lengths(evidence)
    parts = []
    for shorter, longer in pairwise(found):
        gains = {line: gain(evidence, line, shorter, longer) for line in OVER_LENGTH}
        each = ", ".join(f"{line_name(line)} {told(values)}" for line, values in gains.items())
        # The points that may be gained are a margin already: with few seeds the mean has no other.
        state = at_most(gains["sfl"], LITTLE, margin=0.0)
        parts.append(Part(f"gained from {shorter} to {longer} {unit}: {each}", state, len(gains["sfl"])))
    return parts or [NOTHING_LONGER]


def leads_in_longer_runs(evidence: Evidence) -> Sequence[Part]:
    """Compare what is recommended with the others where all are trained longer."""
    (_, *longer), unit = lengths(evidence)
    return [
        ahead(
            evidence,
            trained("recommended", at),
            trained(other, at),
            f"after {at} {unit}, recommended above {line_name(other)}",
        )
        for at in longer
        for other in ("sfl", "frozen", "psl")
    ] or [NOTHING_LONGER]


LONGER = Claim(
    "leads-in-longer-runs",
    "The recommended settings lead in longer runs, too",
    "",
    "CIFAR-10, alpha 0.1: above SFL, frozen halves and PSL in the longer runs of `length`, with the rates "
    "that were chosen at the usual length.",
    leads_in_longer_runs,
)
CONVERGED = Claim(
    "sfl-has-converged",
    "SFL has clearly converged",
    "",
    f"CIFAR-10, alpha 0.1: it gains less than {LITTLE:g} points if it is trained twice as long, and once "
    "more; each length of `length` has a schedule of its own.",
    has_converged,
)
