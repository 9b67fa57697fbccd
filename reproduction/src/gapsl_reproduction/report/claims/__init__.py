"""What the paper claims, and what we ask of our own settings, each with the rule that decides about it.

To add a claim: write a function from evidence to parts in the module it belongs to, and put a `Claim` with
it into that module's `CLAIMS`.
"""

from __future__ import annotations

from gapsl_reproduction.report.claims import (
    ablations,
    accuracy,
    convergence,
    cost,
    gradients,
    robustness,
    scaling,
    selection,
)
from gapsl_reproduction.report.claims.claim import Claim, Judgement, Part, Verdict, judge
from gapsl_reproduction.report.claims.deciding import State
from gapsl_reproduction.report.claims.goals import FOR_ITS_BYTES, GOALS, QUESTIONS
from gapsl_reproduction.report.claims.length import CONVERGED, LONGER

CLAIMS: tuple[Claim, ...] = (
    *accuracy.CLAIMS,
    *convergence.CLAIMS,
    *scaling.CLAIMS,
    *gradients.CLAIMS,
    *selection.CLAIMS,
    *ablations.CLAIMS,
    *robustness.CLAIMS,
    *cost.CLAIMS,
)

__all__ = [
    "CLAIMS",
    "CONVERGED",
    "FOR_ITS_BYTES",
    "GOALS",
    "LONGER",
    "QUESTIONS",
    "Claim",
    "Judgement",
    "Part",
    "State",
    "Verdict",
    "judge",
]
