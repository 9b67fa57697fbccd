"""What we ask of the recommended settings, judged by the same rule as the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence

from gapsl_reproduction import paper
from gapsl_reproduction.report.claims import NOT_MEASURED, above, honest
from gapsl_reproduction.report.frame import IID, LONGER, SKEWED, Evidence, line_name
from gapsl_reproduction.report.stats import minus
from gapsl_reproduction.report.verdicts import Claim, Part, Parts, ahead, margin

OURS = "recommended"
NEAR = 5.0  # points below central
KEPT = 90.0  # % of the clean accuracy that honest devices keep among faulty ones
PAPERS_LEAD = round(
    paper.ACCURACY["cifar10", "non-iid"]["gapsl"] - paper.ACCURACY["cifar10", "non-iid"]["psl"], 1
)


def lead_of(other: str, limit: float, condition: str = SKEWED) -> Parts:
    """Return whether the recommended settings are ahead by so much."""
    return lambda evidence: [
        margin(f"recommended minus {line_name(other)}", evidence.lead(OURS, other, condition), limit)
    ]


def for_equal_bytes(evidence: Evidence) -> Sequence[Part]:
    """Compare with frozen client-side models trained twice as long: nothing is sent back to them."""
    lead = minus(evidence.values(OURS, SKEWED), evidence.values("frozen", LONGER))
    return [ahead("recommended above frozen twice as long", lead)]


def robust(evidence: Evidence) -> Sequence[Part]:
    """See what honest devices keep of their clean accuracy among faulty ones; a failed run is guessing."""
    clean = evidence.values(OURS, SKEWED, "honest")
    parts = []
    for at in evidence.conditions("faults"):
        left = honest(evidence, OURS, at)
        kept = {seed: 100 * left[seed] / clean[seed] for seed in sorted(set(left) & set(clean))}
        parts.append(margin(f"{at}, % kept", kept, KEPT))
    return parts or [NOT_MEASURED]


PROMISE = (
    Claim("Above SFL", above((OURS, "sfl"))),
    Claim("Above frozen client-side models", above((OURS, "frozen"))),
    Claim(f"At least {PAPERS_LEAD:g} points above PSL, the paper's margin", lead_of("psl", PAPERS_LEAD)),
    Claim(f"Within {NEAR:g} points of all data in one place", lead_of("central", -NEAR)),
    Claim("Not below PSL on IID data", lead_of("psl", 0.0, IID)),
    Claim("Above frozen client-side models for equal bytes", for_equal_bytes),
    Claim(f"Honest devices keep {KEPT:g} % of their accuracy among three faulty ones of ten", robust),
)
# What we do not ask of them, and want to know.
QUESTIONS = tuple(
    Claim(f"Above the same without {part}", above((OURS, f"recommended without {part}")))
    for part in ("probes", "calibration", "balance")
)
