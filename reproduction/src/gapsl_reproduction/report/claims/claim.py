"""A claim of the paper, what it comes down to in numbers, and the verdict by one rule for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from gapsl_reproduction.report.claims.deciding import State
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.naming import seeds_name
from gapsl_reproduction.report.spread import ENOUGH


class Verdict(Enum):
    """Whether a claim holds at this scale."""

    HOLDS = "holds"
    PART = "holds in part"
    NOT = "does not hold"
    UNDECIDED = "undecided"
    UNJUDGED = "not judged at this scale"
    MISSING = "not measured yet"


# How a verdict follows, in words.
RULE = (
    "It *holds* if all that are measured are a yes, *in part* if some are; it *does not hold* if none is and "
    "at least one is a no; and it is *undecided* if all are. A claim to be the best of all, or to lose "
    "most, does not hold in part: a single no refutes it."
)


@dataclass(frozen=True)
class Part:
    """One thing a claim comes down to: whether it is so, and the numbers that say it."""

    text: str
    state: State
    seeds: int = 0  # that it rests on; 0: seeds have nothing to do with it
    why: str = ""  # it is not judged


NOT_MEASURED = Part("not measured", State.MISSING)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, with the rule that decides about it."""

    name: str
    says: str
    where: str
    rule: str
    parts: Callable[[Evidence], Sequence[Part]]
    whole: bool = False  # a claim to be first of all: one comparison that is not so refutes it


@dataclass(frozen=True)
class Judgement:
    """What became of a claim."""

    claim: Claim
    verdict: Verdict
    parts: Sequence[Part]

    @property
    def partly(self) -> bool:
        """Whether some of what it comes down to is measured, and some is not."""
        states = [part.state for part in self.parts]
        return State.MISSING in states and any(state.judged for state in states)

    @property
    def words(self) -> str:
        """The verdict, with what weakens it or why there is none."""
        seeds = sorted({part.seeds for part in self.parts if part.seeds and part.state.judged})
        weak = ["so far"] if self.partly else []
        if seeds and seeds[0] < ENOUGH:
            weak.append(seeds_name(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds")
        verdict: str = self.verdict.value
        if self.verdict is Verdict.UNJUDGED:
            return f"{verdict}: {self.parts[0].why}"
        return verdict + (f" ({', '.join(weak)})" if weak else "")


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    """Decide about a claim."""
    parts = claim.parts(evidence)
    return Judgement(claim, verdict_of([part.state for part in parts], whole=claim.whole), parts)


def verdict_of(states: Sequence[State], *, whole: bool = False) -> Verdict:
    """Return the verdict that the states of a claim's parts come to; a `whole` one has no "in part"."""
    judged = {state for state in states if state.judged}
    if not judged:
        unjudged = bool(states) and State.MISSING not in states
        return Verdict.UNJUDGED if unjudged else Verdict.MISSING
    if judged == {State.SO}:
        return Verdict.HOLDS
    if State.SO in judged and not whole:
        return Verdict.PART
    return Verdict.NOT if State.NOT_SO in judged else Verdict.UNDECIDED
