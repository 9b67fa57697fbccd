"""The claim engine: what a claim comes down to, and the verdict by one rule for all.

An interval decides, and it takes three seeds. One seed decides nothing, however large the difference is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from gapsl.analysis.statistics import Values
from gapsl_reproduction.report.frame import Evidence
from gapsl_reproduction.report.numbers import ENOUGH, interval, told

# How verdicts follow, in words.
RULE = (
    "A comparison is a *yes* if the 95 % interval of the differences (paired by seed) lies wholly on the "
    "side that is claimed, of zero or of the limit that is named; a *no* if nothing of it lies there; and "
    f"*undecided* if it reaches across, or if there are fewer than {ENOUGH} seeds. A claim *holds* if all "
    "its comparisons are a yes, *in part* if some are; it *does not hold* if none is a yes and at least one "
    "is a no. A claim to be first of all does not hold in part: a single no refutes it. What is chosen among "
    "several is chosen on the validation split. Of twenty such intervals one misses by chance. "
    "Among faulty devices a run that fails counts as guessing. "
    "Bytes are counted, not sampled: one seed decides about them."
)


class State(Enum):
    """What became of one thing that a claim comes down to."""

    SO = "yes"
    NOT_SO = "no"
    UNDECIDED = "undecided"
    MISSING = "not measured"

    @classmethod
    def of(cls, so: bool) -> State:
        """Return the state of something that needs no interval."""
        return cls.SO if so else cls.NOT_SO


class Verdict(Enum):
    """Whether a claim holds at this scale."""

    HOLDS = "holds"
    PART = "holds in part"
    NOT = "does not hold"
    UNDECIDED = "undecided"
    MISSING = "not measured"

    @property
    def decided(self) -> bool:
        """Whether there is something to conclude."""
        return self in (Verdict.HOLDS, Verdict.PART, Verdict.NOT)


def at_least(values: Values, limit: float) -> State:
    """Say whether a mean is not below a limit."""
    if not values:
        return State.MISSING
    span = interval(values)
    if span is None:
        return State.UNDECIDED
    low, high = span
    return State.SO if low >= limit else State.NOT_SO if high < limit else State.UNDECIDED


def at_most(values: Values, limit: float) -> State:
    """Say whether a mean is not above a limit."""
    return at_least({seed: -value for seed, value in values.items()}, -limit)


def above_zero(values: Values) -> State:
    """Say whether a mean is above zero; the same is not above."""
    found = at_most(values, 0.0)
    return {State.SO: State.NOT_SO, State.NOT_SO: State.SO}.get(found, found)


def within(values: Values, limit: float) -> State:
    """Say whether a mean is no further from zero than a limit."""
    states = {at_most(values, limit), at_least(values, -limit)}
    for state in (State.MISSING, State.NOT_SO, State.UNDECIDED):
        if state in states:
            return state
    return State.SO


@dataclass(frozen=True)
class Part:
    """One thing a claim comes down to: the numbers that say it, and whether it is so."""

    text: str
    state: State


def ahead(text: str, values: Values, unit: str = "") -> Part:
    """Return a part that is so if differences are above zero."""
    return Part(f"{text}: {told(values, unit)}", above_zero(values))


def margin(text: str, values: Values, limit: float) -> Part:
    """Return a part that is so if differences are not below a limit."""
    wanted = f"{limit:g}".replace("-", "−")
    return Part(f"{text}, at least {wanted}: {told(values)}", at_least(values, limit))


Parts = Callable[[Evidence], Sequence[Part]]


@dataclass(frozen=True)
class Claim:
    """A sentence, with the comparisons that decide about it."""

    says: str
    parts: Parts
    where: str = ""  # in the paper; nothing: ours
    first: bool = False  # a claim to be first of all: one comparison that is not so refutes it


@dataclass(frozen=True)
class Judgement:
    """What became of a claim."""

    claim: Claim
    verdict: Verdict
    parts: Sequence[Part]

    @property
    def words(self) -> str:
        """The verdict; so far, if what is not measured yet could change it."""
        missing = any(part.state is State.MISSING for part in self.parts)
        open_ = self.verdict is Verdict.PART or (self.verdict is Verdict.NOT and not self.claim.first)
        return self.verdict.value + (" (so far)" if missing and open_ else "")


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    """Decide about a claim."""
    parts = claim.parts(evidence)
    return Judgement(claim, verdict_of([part.state for part in parts], first=claim.first), parts)


def verdict_of(states: Sequence[State], *, first: bool = False) -> Verdict:
    """Return the verdict that the states of a claim's parts come to."""
    found = set(states)
    if found <= {State.MISSING}:
        return Verdict.MISSING
    if found == {State.SO}:
        return Verdict.HOLDS
    if State.SO in found and not first:
        return Verdict.PART
    return Verdict.NOT if State.NOT_SO in found else Verdict.UNDECIDED
