"""The claims that are judged, the paper's and ours, as comparisons of lines on CIFAR-10 under conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from gapsl.analysis.statistics import Values, mean
from gapsl_reproduction import paper
from gapsl_reproduction.catalogue import AGREEING, FIVE, PAPER, ROBUSTLY
from gapsl_reproduction.report.frame import (
    IID,
    LONGER,
    PAPER_RATES,
    SKEWED,
    Evidence,
    faulty_devices,
    honest_accuracy,
    line_name,
    over_devices,
)
from gapsl_reproduction.report.numbers import minus, rank_correlation, signed, told
from gapsl_reproduction.report.verdicts import Claim, Part, Parts, State, ahead, at_most, margin, within

RIVALS = tuple(line for line in PAPER if line != "gapsl")
HARDLY = 2.0  # points; the paper's own fall from 10 to 40 devices is 1.6
VARIES = 5.0  # points between the best and the worst device alone
STRONG = -0.5  # a rank correlation that shows what the paper says
OURS = "papsl"
NEAR = 5.0  # points below central
KEPT = 90.0  # % of the clean accuracy that honest devices keep among faulty ones
PRINTED = paper.ACCURACY["cifar10", "non-iid"]
PAPERS_LEAD = round(PRINTED["gapsl"] - PRINTED["psl"], 1)
NOT_MEASURED = Part("not measured", State.MISSING)


def above(*pairs: tuple[str, str], other: str = SKEWED) -> Parts:
    """Return comparisons of lines at alpha 0.1 with others there, or under another condition."""
    where = "" if other == SKEWED else f" {other}"
    return lambda evidence: [
        ahead(
            f"{line_name(first)} above {line_name(second)}{where}",
            minus(evidence.values(first), evidence.values(second, other)),
        )
        for first, second in pairs
    ]


def highest(*conditions: str, group: str = "") -> Parts:
    """Return the comparisons of GAPSL with every rival that is planned under conditions."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        wanted = {(each.cell.line, each.cell.condition) for each in evidence.plan}
        own = evidence.conditions(group)
        # Of a group, alpha 0.1 with 10 devices is one; alone it says nothing of the others.
        both = [SKEWED, *own] if any(evidence.values("gapsl", at) for at in own) else own
        return [
            ahead(f"{at}, GAPSL above {line_name(rival)}", evidence.lead("gapsl", rival, at))
            for at in (*conditions, *both)
            for rival in RIVALS
            if (rival, at) in wanted
        ]

    return parts


def fall(evidence: Evidence, line: str, before: str, after: str) -> Values:
    """Return what a line loses from one condition to another, by seed."""
    return minus(evidence.values(line, before), evidence.values(line, after))


def lost(evidence: Evidence, lines: Iterable[str], before: str, after: str) -> dict[str, Values]:
    """Return what lines lose from one condition to another."""
    return {line: fall(evidence, line, before, after) for line in lines}


def more(first: str, others: Iterable[str], found: dict[str, Values], verb: str) -> list[Part]:
    """Return whether a line loses more than others."""
    return [
        ahead(f"{line_name(first)} {verb} more than {line_name(other)}", minus(found[first], found[other]))
        for other in others
    ]


def lose_most(evidence: Evidence) -> Sequence[Part]:
    """Compare what PSL and vanilla SL lose to skew with what the others lose."""
    found, others = lost(evidence, PAPER, IID, SKEWED), ("gapsl", "sfl", "epsl")
    return [*more("psl", others, found, "loses"), *more("vanilla", others, found, "loses")]


def psl_falls_most(evidence: Evidence) -> Sequence[Part]:
    """Compare what PSL loses from the most even alpha to 0.1 with what the others lose."""
    even = (evidence.conditions("alpha") or [IID])[0]
    return more("psl", ("gapsl", "sfl"), lost(evidence, FIVE, even, SKEWED), "falls")


def steady_with_devices(evidence: Evidence) -> Sequence[Part]:
    """See how far GAPSL falls with more devices, and whether the others fall further."""
    most = (evidence.conditions("devices") or [SKEWED])[-1]
    found = lost(evidence, FIVE, SKEWED, most)
    own = f"GAPSL's fall to {most}, at most {HARDLY:g}: {told(found['gapsl'])}"
    others = (*more("sfl", ["gapsl"], found, "falls"), *more("psl", ["gapsl"], found, "falls"))
    return [Part(own, at_most(found["gapsl"], HARDLY)), *others]


def steady_when_even(evidence: Evidence) -> Sequence[Part]:
    """See how far each method falls with more devices when labels are even."""
    most = (evidence.conditions("devices iid") or [IID])[-1]
    return [
        Part(f"{line_name(line)}'s fall to {most}, at most {HARDLY:g}: {told(own)}", within(own, HARDLY))
        for line, own in lost(evidence, FIVE, IID, most).items()
    ]


def fewest_epochs(evidence: Evidence) -> Sequence[Part]:
    """Compare epochs to converge where learning rates are constant: a schedule would decide them."""
    constant = PAPER_RATES if evidence.conditions("paper") else SKEWED
    return [
        ahead(
            f"{line_name(rival)} takes longer than GAPSL",
            evidence.lead(rival, "gapsl", constant, "converged"),
            " epochs",
        )
        for rival in ("sfl", "epsl", "psl")
    ]


def growing(first: str, second: str, measure: str, unit: str = "") -> Parts:
    """Return whether the gap between two lines grows from the most even labels to the most skewed."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        even = (evidence.conditions("alpha") or [SKEWED])[0]
        gaps = [evidence.lead(first, second, at, measure) for at in (even, SKEWED)]
        text = f"{line_name(first)} minus {line_name(second)}, from {even} to {SKEWED}"
        return [ahead(text, minus(gaps[1], gaps[0]), unit)]

    return parts


def larger_angles(evidence: Evidence) -> Sequence[Part]:
    """Compare the angles between PSL's gradients with those between SFL's."""
    return [ahead(f"{SKEWED}, PSL above SFL", evidence.lead("psl", "sfl", SKEWED, "angle"), "°")]


def in_order(evidence: Evidence, line: str, conditions: Sequence[str]) -> list[str]:
    """Return the conditions that a line was run under, the best on the validation split first.

    What is then compared on the test set was not chosen for its luck there. Only seeds that all have count.
    """
    known = {at: own for at in conditions if (own := evidence.values(line, at, "validation"))}
    common = set.intersection(*map(set, known.values())) if known else set()
    return sorted(known, key=lambda at: -sum(known[at][seed] for seed in common)) if common else []


def singles_differ(evidence: Evidence) -> Sequence[Part]:
    """See how far the best device alone is from the worst."""
    order = in_order(evidence, "single", evidence.conditions("single"))
    if len(order) < 2:
        return [NOT_MEASURED]
    apart = fall(evidence, "single", order[0], order[-1])
    return [margin(f"{order[0]} alone minus {order[-1]} alone", apart, VARIES)]


def intermediate(group: str) -> Parts:
    """Return whether the best of GAPSL with something fixed is neither the smallest nor the largest."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        names = evidence.conditions(group)
        order = in_order(evidence, "gapsl", names[1:-1])
        return [
            ahead(f"{order[0]} above {end}", fall(evidence, "gapsl", order[0], end))
            for end in (names[0], names[-1])
            if order
        ] or [NOT_MEASURED]

    return parts


def adaptive_is_best(group: str) -> Parts:
    """Return whether nothing fixed is as good as the adaptive."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        order = in_order(evidence, "gapsl", evidence.conditions(group))
        return [
            ahead(f"GAPSL above the best fixed one, {at}", fall(evidence, "gapsl", SKEWED, at))
            for at in order[:1]
        ] or [NOT_MEASURED]

    return parts


def score_tells_accuracy(evidence: Evidence) -> Sequence[Part]:
    """Correlate PSL's devices' scores with their accuracies; in GAPSL the score makes the accuracy."""
    found = {}
    for seed, result in evidence.runs("psl").items():
        own = zip(over_devices(result, "scores"), result["final"]["device_accuracy"], strict=False)
        pairs = [(score, reached) for score, reached in own if score is not None and reached is not None]
        value = rank_correlation([score for score, _ in pairs], [reached for _, reached in pairs])
        if value is not None:
            found[seed] = value
    text = f"PSL, Spearman's correlation {signed(STRONG)} or below: {told(found, digits=2)}"
    return [Part(text, at_most(found, STRONG))]


def filters_noise(evidence: Evidence) -> Sequence[Part]:
    """See whether GAPSL's honest devices lose less to faulty ones than PSL's; a failed run is guessing."""
    parts = []
    for at in evidence.conditions("faults"):
        psl, gapsl = (
            {seed: before - after for seed, (before, after) in honest(evidence, line, at, line).items()}
            for line in ("psl", "gapsl")
        )
        parts.append(ahead(f"{at}, PSL's honest devices lose more than GAPSL's", minus(psl, gapsl)))
    return parts or [NOT_MEASURED]


def honest(evidence: Evidence, line: str, condition: str, clean: str) -> dict[int, tuple[float, float]]:
    """Return the accuracy of the honest devices by seed: in a line's clean run, and among faulty ones.

    That of guessing where the run among faulty ones failed.
    """
    found = {}
    after = evidence.values(line, condition, "honest", failed=evidence.guessing)
    for seed, run in evidence.stored.get((line, condition), {}).items():
        undisturbed = evidence.runs(clean).get(seed)
        before = honest_accuracy(undisturbed, faulty_devices(run)) if undisturbed else None
        if before:
            found[seed] = before, after[seed]
    return found


def traffic(evidence: Evidence) -> Sequence[Part]:
    """Compare bytes with those of PSL and SFL in the same rounds."""
    parts = []
    for other in ("psl", "sfl"):
        found = evidence.lead("gapsl", other, SKEWED, "bytes")
        so = all(value == 0 if other == "psl" else value < 0 for value in found.values())
        state = State.of(so) if found else State.MISSING
        parts.append(Part(f"GAPSL minus {line_name(other)}: {signed(mean(found) or 0.0)} MB", state))
    return parts


def lead_of(other: str, limit: float, condition: str = SKEWED) -> Parts:
    """Return whether PAPSL is ahead by so much."""
    return lambda evidence: [
        margin(f"PAPSL minus {line_name(other)}", evidence.lead(OURS, other, condition), limit)
    ]


def robust(evidence: Evidence) -> Sequence[Part]:
    """See what honest devices keep of the clean accuracy of the plain step; a failed run is guessing."""
    parts = []
    for at in evidence.conditions("faults"):
        found = honest(evidence, ROBUSTLY, at, OURS)
        kept = {seed: 100 * after / before for seed, (before, after) in found.items()}
        parts.append(margin(f"{at}, % kept", kept, KEPT))
    return parts or [NOT_MEASURED]


PROMISE = (
    Claim("PAPSL above SFL", above((OURS, "sfl"))),
    Claim("PAPSL above frozen client-side models", above((OURS, "frozen"))),
    Claim(f"PAPSL {PAPERS_LEAD:g} points above PSL, the paper's margin", lead_of("psl", PAPERS_LEAD)),
    Claim(f"PAPSL within {NEAR:g} points of all data in one place", lead_of("central", -NEAR)),
    Claim("PAPSL not below PSL on IID data", lead_of("psl", 0.0, IID)),
    # Frozen client-side models are trained twice as long: nothing is sent back to them.
    Claim("PAPSL above frozen client-side models for equal bytes", above((OURS, "frozen"), other=LONGER)),
    Claim(
        f"PAPSL with clip: honest devices keep {KEPT:g} % of their accuracy among three faulty of ten", robust
    ),
)
# What we do not ask of them, and want to know.
QUESTIONS = (
    Claim("PAPSL above SFL that averages every 5 rounds", above((OURS, "sfl every 5 rounds"))),
    Claim("PAPSL above PAPSL as it was found", above((OURS, "papsl as found"))),
    Claim("PAPSL agreeing on gradients above PAPSL", above((AGREEING, OURS))),
    Claim("PAPSL agreeing on gradients above SFL", above((AGREEING, "sfl"))),
    *(
        Claim(f"PAPSL above PAPSL without {part}", above((OURS, f"papsl without {part}")))
        for part in ("probes", "calibration", "balance")
    ),
)

first = partial(Claim, first=True)  # a claim to be first of all

CLAIMS = (
    first("GAPSL has the highest accuracy on skewed labels", highest(SKEWED), "Table I, Fig. 15"),
    first("GAPSL has the highest accuracy there at the paper's rates", highest(PAPER_RATES), "Table I"),
    first("GAPSL has the highest accuracy on IID data", highest(IID), "Table I, Fig. 15"),
    first("GAPSL has the highest accuracy on CIFAR-100", highest(group="cifar100"), "Table I"),
    Claim("GAPSL converges in the fewest epochs", fewest_epochs, "Table I, Fig. 17"),
    Claim("PSL and vanilla SL lose the most from IID to non-IID", lose_most, "Section V-A, Fig. 16"),
    Claim("On skewed labels PSL is less accurate than SFL", above(("sfl", "psl")), "Fig. 2"),
    Claim("PSL's gap behind SFL grows with skew", growing("sfl", "psl", "accuracy"), "Fig. 3a"),
    Claim("PSL's angles between gradients are larger than SFL's", larger_angles, "Fig. 3b"),
    Claim(
        "PSL's angles exceed SFL's the more, the more labels are skewed",
        growing("psl", "sfl", "angle", "°"),
        "Fig. 3b",
    ),
    Claim("One device's gradients train well or badly, by the device", singles_differ, "Fig. 5a"),
    Claim("A lower consistency score goes with a higher accuracy", score_tells_accuracy, "Fig. 7"),
    Claim("An intermediate share of leaders is best", intermediate("ratio"), "Fig. 8a"),
    Claim("The adaptive share of leaders is better than any fixed", adaptive_is_best("ratio"), "Fig. 8"),
    Claim("An intermediate angular threshold is best", intermediate("threshold"), "Fig. 13a"),
    Claim("The adaptive threshold is better than any fixed", adaptive_is_best("threshold"), "Fig. 13"),
    Claim(
        "GAPSL hardly falls from 10 to 40 devices on skewed labels, the others do",
        steady_with_devices,
        "Table II, Fig. 18",
    ),
    first(
        "GAPSL is the most accurate for every number of devices",
        highest(group="devices"),
        "Table II, Fig. 18",
    ),
    Claim("On IID data no method changes much with the number of devices", steady_when_even, "Table II"),
    first("PSL degrades most as alpha gets smaller", psl_falls_most, "Table III, Fig. 19"),
    first("GAPSL is the most accurate at every alpha", highest(group="alpha"), "Table III, Fig. 19"),
    Claim("LGI beats Non-LGI and Rand-LGI", above(("gapsl", "non-lgi"), ("gapsl", "rand-lgi")), "Fig. 20"),
    Claim("GDA beats Non-GDA and Rand-GDA", above(("gapsl", "non-gda"), ("gapsl", "rand-gda")), "Fig. 21"),
    Claim("LGI filters outliers and adversarial noise", filters_noise, "Section III-B, no experiment"),
    Claim("GAPSL sends exactly as much as PSL, and less than SFL", traffic, "Section III-A"),
)
