"""Claims about gradients: their angles, what one device's are worth, and what scores tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gapsl.analysis.diagnosis.wording import percent
from gapsl_reproduction.report.claims.claim import NOT_MEASURED, Claim, Part
from gapsl_reproduction.report.claims.comparing import (
    RANK_MARGIN,
    ahead,
    best_of,
    difference_part,
    in_order,
    lead,
    signed,
    told,
)
from gapsl_reproduction.report.claims.convergence import sooner
from gapsl_reproduction.report.claims.deciding import State, at_least, at_most
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures.devices import first_seed, singles
from gapsl_reproduction.report.measures import (
    Measure,
    accuracy,
    angle,
    by_seed,
    course,
    device_accuracies,
    over_devices,
)
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.ranks import rank_correlation
from gapsl_reproduction.report.spread import Values, minus
from gapsl_reproduction.store import Result

VARIES = 5.0  # points between the best and the worst device
OFTEN = 0.2  # of the evaluations, for more than one device to be the best
STRONG = -0.5  # a rank correlation that shows what the paper says


def gaps(evidence: Evidence, first: str, second: str, measure: Measure) -> dict[float, Values]:
    """Return how far one line is above another, by alpha and seed."""
    return {
        alpha: minus(
            by_seed(evidence.runs(evidence.over_alpha(first)[alpha]), measure),
            by_seed(evidence.runs(evidence.over_alpha(second)[alpha]), measure),
        )
        for alpha in evidence.over_alpha(first)
    }


def growing(first: str, second: str, measure: Measure, what: str) -> Callable[[Evidence], Sequence[Part]]:
    """Return the parts of a claim that one line is above another, the more so the more labels are skewed."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        found = gaps(evidence, first, second, measure)
        ends = max(found), min(found)
        grown = minus(found[ends[1]], found[ends[0]])
        names = line_name(first), line_name(second)
        return [
            *(
                difference_part(f"alpha {alpha:g}, {what} of {names[0]} above {names[1]}'s", gap)
                for alpha, gap in found.items()
            ),
            difference_part(f"the gap grows from alpha {ends[0]:g} to {ends[1]:g}", grown),
        ]

    return parts


def singles_differ(evidence: Evidence) -> Sequence[Part]:
    """See how far the best device alone is from the worst, both as the validation split has them."""
    places = singles(evidence)
    seen = first_seed(evidence, places.values())
    ordered = in_order(seen, places)
    if len(ordered) < 2:
        return [NOT_MEASURED]
    best, worst = ordered[0], ordered[-1]
    apart = lead(seen, places[best], places[worst])
    text = f"device {best} alone above device {worst} alone: {told(apart)}"
    return [Part(text, at_least(apart, VARIES), len(apart))]


def best_device_changes(evidence: Evidence) -> Sequence[Part]:
    """See which device alone is the best at each evaluation."""
    seen = first_seed(evidence, singles(evidence).values())
    courses = {
        device: [value for _, value in course(result)]
        for device, place in singles(evidence).items()
        for result in seen.runs(place).values()
    }
    if len(courses) < 2:
        return [NOT_MEASURED]
    length = min(map(len, courses.values()))
    best = [max(courses, key=lambda device: courses[device][i]) for i in range(length)]
    often = {device: best.count(device) for device in sorted(set(best))}
    changing = sum(count >= OFTEN * length for count in often.values()) > 1
    shares = ", ".join(f"device {device} at {count}" for device, count in often.items())
    return [Part(f"the best of {length} evaluations: {shares}", State.of(changing), 1)]


def score_tells_accuracy(evidence: Evidence) -> Sequence[Part]:
    """Correlate devices' scores with their accuracies, and with those of the device alone.

    In PSL alone: GAPSL keeps a device with a low score more often, and there the score makes the accuracy.
    """
    return [
        correlated(evidence, "PSL: score and accuracy of the device's half", own_accuracies),
        correlated(evidence, "PSL: score and accuracy of the device trained alone", lone_accuracies),
    ]


Accuracies = Callable[[Evidence, Result], Sequence[float | None]]


def own_accuracies(evidence: Evidence, result: Result) -> Sequence[float | None]:
    """Return the accuracy of each device's half with the server's."""
    return device_accuracies(result)


def lone_accuracies(evidence: Evidence, result: Result) -> Sequence[float | None]:
    """Return the accuracy of each device trained alone, with the same seed and so the same data."""
    places = singles(evidence)
    found = {device: evidence.runs(place).get(result["seed"]) for device, place in places.items()}
    devices = range(len(result["label_counts"]))
    return [None if (run := found.get(device)) is None else accuracy(run) for device in devices]


def correlated(evidence: Evidence, text: str, accuracies: Accuracies) -> Part:
    """Return whether low scores go with high accuracies in PSL: the rank correlation, by seed."""
    found = {}
    for seed, result in evidence.runs(Place("psl")).items():
        scores = over_devices(result, "scores")
        pairs = [
            (score, own)
            for score, own in zip(scores, accuracies(evidence, result), strict=False)
            if score is not None and own is not None
        ]
        value = rank_correlation([score for score, _ in pairs], [own for _, own in pairs])
        if value is not None:
            found[seed] = value
    words = f"{text}: rank correlation {told(found, digits=2)}"
    return Part(words, at_most(found, STRONG, RANK_MARGIN), len(found))


def leader_beats_singles(evidence: Evidence) -> Sequence[Part]:
    """Compare the leader gradient with the best device alone."""
    places = singles(evidence)
    leader = Place("non-gda")
    seen = first_seed(evidence, [leader, *places.values()])
    best = best_of(seen, places)
    if best is None:
        return [NOT_MEASURED]
    return [
        ahead(seen, leader, places[best], f"the leader gradient above the best device alone ({best})"),
        sooner(seen, leader, places[best], f"device {best} takes longer than the leader gradient"),
    ]


CLAIMS = (
    Claim(
        "gap-grows",
        "PSL is behind SFL, and the gap grows with skew",
        "Fig. 3a",
        "CIFAR-10: at each alpha SFL above PSL, and the gap larger at the smallest alpha.",
        growing("sfl", "psl", accuracy, "accuracy"),
    ),
    Claim(
        "angles",
        "PSL has larger angles between gradients than SFL, and the gap grows with skew",
        "Fig. 3b",
        "CIFAR-10: at each alpha PSL's mean angle above SFL's, and the gap larger at the smallest alpha "
        "(in degrees).",
        growing("psl", "sfl", angle, "angle"),
    ),
    Claim(
        "singles-differ",
        "How well a model trains on one device's gradients varies much with the device",
        "Fig. 5a",
        "CIFAR-10, alpha 0.1: the best and the worst device on the validation split are at least "
        f"{VARIES:g} points apart.",
        singles_differ,
    ),
    Claim(
        "best-device-changes",
        "Which device's gradients help most changes over the epochs",
        "Fig. 5b",
        f"More than one device is the best in at least {percent(OFTEN)} of the evaluations.",
        best_device_changes,
    ),
    Claim(
        "score-tells-accuracy",
        "A lower consistency score goes with a higher test accuracy",
        "Fig. 7",
        f"CIFAR-10, alpha 0.1: Spearman's rank correlation over PSL's devices is {signed(STRONG)} or below. "
        "(In GAPSL the score decides who is kept, and so who learns.)",
        score_tells_accuracy,
    ),
    Claim(
        "leader-beats-singles",
        "The leader gradient beats single devices' gradients, in accuracy and speed",
        "Fig. 11",
        "CIFAR-10, alpha 0.1: Non-GDA, which steps on the leader gradient, above the device that is best "
        "alone on the validation split, and converged sooner than it.",
        leader_beats_singles,
    ),
)
