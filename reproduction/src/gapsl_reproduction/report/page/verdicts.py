"""The claims with their verdicts: all in a table, then one by one with the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gapsl_reproduction.report.claims import Judgement, Part, State, Verdict, claim, comparing
from gapsl_reproduction.report.page.markdown import bullets, paragraphs, table

LEGEND = (
    "A claim comes down to one or more comparisons, listed [below](#the-claims-one-by-one). "
    f"{claim.RULE} {comparing.RULE}"
)


def in_short(judgements: Sequence[Judgement]) -> str:
    """Return how many claims hold, and every claim with its verdict."""
    counts = Counter(judgement.verdict for judgement in judgements)
    partly = Counter(judgement.verdict for judgement in judgements if judgement.partly)
    told = ", ".join(
        f"{counts[verdict]} {words}" + (f" ({partly[verdict]} so far)" if partly[verdict] else "")
        for verdict, words in COUNTED.items()
    )
    rows = [[j.claim.says, j.claim.where, j.words] for j in judgements]
    return paragraphs(
        f"Of {len(judgements)} claims of the paper, at this scale: {told}.",
        table(["the paper's claim", "where", "here"], rows, left=3),
        LEGEND,
    )


COUNTED = {
    Verdict.HOLDS: "hold",
    Verdict.PART: "in part",
    Verdict.NOT: "do not",
    Verdict.UNDECIDED: "undecided",
    Verdict.UNJUDGED: "not judged",
    Verdict.MISSING: "not measured yet",
}


def one_by_one(judgements: Sequence[Judgement]) -> str:
    """Return every claim with its rule and the numbers behind its verdict."""
    parts = []
    for judgement in judgements:
        claim = judgement.claim
        where = f" ({claim.where})" if claim.where else ""
        parts.append(f"**{claim.says}**{where}: *{judgement.words}*. {claim.rule}")
        parts.append(bullets(f"{mark(part)}{part.text}" for part in judgement.parts))
    return paragraphs(*parts)


def mark(part: Part) -> str:
    """Return whether a part is so; what is not measured says so itself."""
    return "" if part.state is State.MISSING else f"{part.state.value}: "
