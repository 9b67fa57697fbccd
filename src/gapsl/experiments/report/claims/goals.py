"""What we ask of the recommended settings, judged as the paper's claims are."""

from __future__ import annotations

from collections.abc import Sequence

from gapsl.experiments import paper
from gapsl.experiments.report.claims.claim import Claim, Part
from gapsl.experiments.report.claims.comparing import ahead, at_least
from gapsl.experiments.report.claims.cost import common
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.measures import accuracy, by_seed, megabytes
from gapsl.experiments.report.naming import line_name
from gapsl.experiments.report.spread import Values, minus

OURS = Place("recommended")
LITTLE = 0.5  # points that may be lost to PSL where there is nothing to repair
LEVEL = 1.0  # points below that count as level


def lead(evidence: Evidence, place: Place, over: Place) -> Values:
    """Return how far one place is above another, by seed."""
    return minus(*(by_seed(evidence.runs(each), accuracy) for each in (place, over)))


def margin() -> float:
    """Return the paper's lead of GAPSL over PSL on CIFAR-10, non-IID."""
    row = paper.ACCURACY["cifar10", "non-iid"]
    return round(row["gapsl"] - row["psl"], 1)


def above_the_rest(evidence: Evidence) -> Sequence[Part]:
    """Compare with SFL, with frozen halves, and with PSL by the paper's margin."""
    over_psl = lead(evidence, OURS, Place("psl"))
    return [
        ahead(evidence, OURS, Place("sfl")),
        ahead(evidence, OURS, Place("frozen")),
        at_least(f"recommended above PSL by {margin():g} points or more", over_psl, margin()),
    ]


def level_with_averaging(evidence: Evidence) -> Sequence[Part]:
    """Compare with SFL that has all the rest of it."""
    found = lead(evidence, OURS, Place("recommended sfl"))
    return [at_least("recommended against recommended SFL", found, -LEVEL)]


def alignment_helps(evidence: Evidence) -> Sequence[Part]:
    """Compare with the same without the pull, and without choosing who leads."""
    return [
        ahead(evidence, OURS, Place(f"recommended {variant}"), f"above it with {words}")
        for variant, words in (
            ("unpulled", "nobody pulled"),
            ("led", "the half that agrees most leading"),
        )
    ]


def lead_stays(evidence: Evidence) -> Sequence[Part]:
    """Compare the lead over PSL with few devices and with many."""
    sizes = evidence.sweep("devices")
    few, many = (
        lead(evidence, *(Place(line, sweep="devices", at=at) for line in ("recommended", "psl")))
        for at in (sizes[0], sizes[-1])
    )
    return [at_least(f"the lead over PSL, {sizes[-1]} devices against {sizes[0]}", minus(many, few), 0.0)]


def no_harm(evidence: Evidence) -> Sequence[Part]:
    """Compare with PSL where labels are even."""
    alpha = max(evidence.sweep("alpha"), key=float)
    places = {
        "IID": ("iid", None, None),
        f"alpha {alpha}": ("non-iid", "alpha", alpha),
    }
    return [
        at_least(
            f"{name}, {line_name('recommended')} against PSL",
            lead(evidence, *(Place(line, "cifar10", *where) for line in ("recommended", "psl"))),
            -LITTLE,
        )
        for name, where in places.items()
    ]


def same_traffic(evidence: Evidence) -> Sequence[Part]:
    """Compare bytes with PSL's."""
    both = common(evidence, OURS, Place("psl"), megabytes)
    if both is None:
        return [Part("not measured", None)]
    return [Part(f"recommended {both[0]:,.1f} MB, PSL {both[1]:,.1f} MB", both[0] == both[1])]


GOALS = (
    Claim(
        "above-the-rest",
        "Above SFL and above frozen halves, and above PSL by the paper's margin",
        "",
        f"CIFAR-10, alpha 0.1; the mean lead over PSL at least {margin():g} points.",
        above_the_rest,
    ),
    Claim(
        "level-with-averaging",
        "Level with SFL that has all the rest of it",
        "",
        f"CIFAR-10, alpha 0.1: at most {LEVEL:g} point below, on average.",
        level_with_averaging,
    ),
    Claim(
        "alignment-helps",
        "Alignment contributes: with it against without, all else the same",
        "",
        "CIFAR-10, alpha 0.1: above the same without the pull towards the leader, and above the same with "
        "everybody in the leader.",
        alignment_helps,
    ),
    Claim(
        "lead-stays",
        "The lead over PSL does not shrink with more devices",
        "",
        "CIFAR-10, alpha 0.1: the mean lead with the most devices is not below that with the fewest.",
        lead_stays,
    ),
    Claim(
        "no-harm",
        "Where labels are even it costs little",
        "",
        f"CIFAR-10, IID and the largest alpha: at most {LITTLE:g} points below PSL, on average.",
        no_harm,
    ),
    Claim(
        "same-traffic",
        "No more communication than PSL",
        "",
        "CIFAR-10, alpha 0.1: the same bytes in the same rounds.",
        same_traffic,
    ),
)
