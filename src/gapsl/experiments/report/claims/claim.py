"""A claim of the paper, what it comes down to in numbers, and the verdict by one rule for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from gapsl.experiments.report.evidence import Evidence
from gapsl.experiments.report.naming import seeds_name
from gapsl.experiments.report.spread import ENOUGH


class Verdict(Enum):
    """Whether a claim holds at this scale."""

    HOLDS = "holds"
    PART = "holds in part"
    NOT = "does not hold"
    MISSING = "not measured yet"


@dataclass(frozen=True)
class Part:
    """One thing a claim comes down to: whether it is so, and the numbers that say it."""

    text: str
    so: bool | None  # None: not measured yet
    seeds: int = 0  # that it rests on; 0: seeds have nothing to do with it


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, with the rule that decides about it."""

    name: str
    says: str
    where: str
    rule: str
    parts: Callable[[Evidence], Sequence[Part]]


@dataclass(frozen=True)
class Judgement:
    """What became of a claim."""

    claim: Claim
    verdict: Verdict
    parts: Sequence[Part]

    @property
    def words(self) -> str:
        """The verdict, with what weakens it."""
        seeds = sorted({part.seeds for part in self.parts if part.so is not None and part.seeds})
        weak = []
        missing = [part.so is None for part in self.parts]
        if any(missing) and not all(missing):
            weak.append("so far")
        if seeds and seeds[0] < ENOUGH:
            weak.append(seeds_name(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds")
        verdict: str = self.verdict.value
        return verdict + (f" ({', '.join(weak)})" if weak else "")


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    """Decide about a claim: all its parts, some or none of those that are measured."""
    parts = claim.parts(evidence)
    measured = [part.so for part in parts if part.so is not None]
    if not measured:
        verdict = Verdict.MISSING
    elif all(measured):
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.PART if any(measured) else Verdict.NOT
    return Judgement(claim, verdict, parts)
