"""What we ask of the recommended settings, judged by intervals as the paper's claims are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from gapsl_reproduction import paper
from gapsl_reproduction.catalogue.contents import LED_OR_NOT
from gapsl_reproduction.report.claims.claim import NOT_MEASURED, Claim, Part
from gapsl_reproduction.report.claims.comparing import ahead, best_of, difference_part, lead, margin_part
from gapsl_reproduction.report.claims.cost import common
from gapsl_reproduction.report.claims.deciding import State
from gapsl_reproduction.report.claims.length import lengths, trained
from gapsl_reproduction.report.claims.robustness import SEPARATES, failures
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.faulty import KINDS, fault_places, honest_or_guessing
from gapsl_reproduction.report.measures import by_seed, megabytes
from gapsl_reproduction.report.naming import line_name, part_name
from gapsl_reproduction.report.spread import minus

OURS = Place("recommended")
AVERAGED = ("recommended sfl", "sfl prior")  # SFL with the same corrections, and as calibration has it
ALIGNED = ("recommended gapsl", "recommended penalty", "recommended strong penalty")
LITTLE = 0.5  # points that may be lost to PSL where there is nothing to repair
LEVEL = 1.0  # points below that count as level


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
        margin_part(f"recommended above PSL by {margin():g} points or more", over_psl, margin()),
    ]


def level_with_averaging(evidence: Evidence) -> Sequence[Part]:
    """Compare with the better SFL of those that are calibrated."""
    best = best_of(evidence, {line: Place(line) for line in AVERAGED})
    if best is None:
        return [NOT_MEASURED]
    text = f"recommended against the better of the two ({part_name(best)})"
    return [margin_part(text, lead(evidence, OURS, Place(best)), -LEVEL)]


def above(*pairs: tuple[str, str]) -> Callable[[Evidence], Sequence[Part]]:
    """Return the parts of a goal that one line is above another, or several above others."""

    def parts(evidence: Evidence) -> Sequence[Part]:
        return [ahead(evidence, Place(first), Place(second)) for first, second in pairs]

    return parts


def leaders_filter(evidence: Evidence) -> Sequence[Part]:
    """Compare the honest devices among the most faulty ones, led by those that agree or by everybody."""
    found = []
    for kind, name in KINDS.items():
        led, unled = (fault_places(evidence, line, kind) for line in LED_OR_NOT)
        count = max(led)
        if not count:  # a kind that is not tried at this scale
            continue
        ours, theirs = (by_seed(evidence.tried(places[count]), honest_or_guessing) for places in (led, unled))
        gained = minus(ours, theirs)
        told = failures(evidence, gained, led[count], unled[count])
        text = f"{count} with {name}" + (f" ({', '.join(told)})" if told else "")
        found.append(difference_part(text, gained))
    return found


def level_with_everybody(evidence: Evidence) -> Sequence[Part]:
    """Compare with everybody leading where no device is faulty."""
    led, unled = (Place(line) for line in LED_OR_NOT)
    return [
        margin_part("recommended against the same with everybody leading", lead(evidence, led, unled), -LEVEL)
    ]


def lead_stays(evidence: Evidence) -> Sequence[Part]:
    """Compare the lead over PSL with few devices and with many."""
    found = []
    for sweep, alike in (("fleet", "rounds"), ("devices", "passes over the data")):
        sizes = evidence.sweep(sweep)
        few, many = (
            lead(evidence, *(Place(line, sweep=sweep, at=at) for line in ("recommended", "psl")))
            for at in (sizes[0], sizes[-1])
        )
        text = f"as many {alike}: the lead over PSL, {sizes[-1]} devices against {sizes[0]}"
        found.append(margin_part(text, minus(many, few), 0.0))
    return found


def no_harm(evidence: Evidence) -> Sequence[Part]:
    """Compare with PSL where labels are even."""
    alpha = max(evidence.sweep("alpha"), key=float)
    places = {
        "IID": ("iid", None, None),
        f"alpha {alpha}": ("non-iid", "alpha", alpha),
    }
    return [
        margin_part(
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
        return [NOT_MEASURED]
    return [Part(f"recommended {both[0]:,.1f} MB, PSL {both[1]:,.1f} MB", State.of(both[0] == both[1]))]


def for_its_bytes(evidence: Evidence) -> Sequence[Part]:
    """Compare with frozen halves trained twice as long, since nothing is sent back to them."""
    found, unit = lengths(evidence)
    return [
        ahead(
            evidence,
            trained("recommended", short),
            trained("frozen", twice),
            f"recommended after {short} {unit} above frozen after {twice}",
        )
        for short, twice in pairwise(found)
        if int(twice) == 2 * int(short)
    ] or [NOT_MEASURED]


GOALS = (
    Claim(
        "above-the-rest",
        "Above SFL and above frozen halves, and above PSL by the paper's margin",
        "",
        f"CIFAR-10, alpha 0.1; the interval of the lead over PSL not below {margin():g} points.",
        above_the_rest,
    ),
    Claim(
        "level-with-averaging",
        "Level with SFL that is calibrated, too",
        "",
        "CIFAR-10, alpha 0.1, against SFL with the same calibration and balance or with both halves "
        "calibrated, whichever is better on the validation split: the interval not below "
        f"−{LEVEL:g} point.",
        level_with_averaging,
    ),
    Claim(
        "ground-helps",
        "Common ground contributes: halves that align with a leader",
        "",
        "CIFAR-10, alpha 0.1: above the same without probes, at learning rates of its own.",
        above(("recommended", "recommended unpulled")),
    ),
    Claim(
        "leaders-filter",
        "Identifying leaders contributes where devices are faulty",
        "",
        "CIFAR-10, alpha 0.1, as many devices faulty as are tried: the honest ones above those of the same "
        "with everybody leading, at the same learning rates. A run that fails counts as guessing. The first "
        "run with noise helped to choose that half of the devices lead.",
        leaders_filter,
    ),
    Claim(
        "leaders-cost-little",
        "Identifying leaders costs little where no device is faulty",
        "",
        "CIFAR-10, alpha 0.1: against the same with everybody leading, at the same learning rates, the "
        f"interval not below −{LEVEL:g} point.",
        level_with_everybody,
    ),
    Claim(
        "alignment-on-top",
        "GAPSL's own alignment on top contributes",
        "",
        "CIFAR-10, alpha 0.1, above the same without: with GAPSL on the server's gradients, at learning "
        "rates of its own; with its regulariser and nobody excluded, as weak as the paper has it and a "
        "hundred times as strong, at the same learning rates.",
        above(*((line, "recommended") for line in ALIGNED)),
    ),
    Claim(
        "lead-stays",
        "The lead over PSL does not shrink with more devices",
        "",
        "CIFAR-10, alpha 0.1: the lead with the most devices minus that with the fewest, its interval not "
        "below zero. Devices work side by side, so that as many rounds take them as long; for as many passes "
        "over the data more devices have fewer rounds, and the server fewer steps.",
        lead_stays,
    ),
    Claim(
        "no-harm",
        "Where labels are even it costs little",
        "",
        "CIFAR-10, IID and the largest alpha: the interval of the lead over PSL not below "
        f"−{LITTLE:g} points.",
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

# What we do not ask of them, and want to know.
QUESTIONS = (
    Claim(
        "solving-helps",
        "Solving for the way to the leader is better than a pull",
        "",
        "CIFAR-10, alpha 0.1, everybody leading: above the same with a pull in the devices' gradients, at "
        "learning rates of its own.",
        above(("recommended unled", "recommended pulled")),
    ),
    SEPARATES,
)

FOR_ITS_BYTES = Claim(
    "for-its-bytes",
    "For the same bytes the recommended settings are above frozen halves",
    "",
    "CIFAR-10, alpha 0.1: above frozen halves that train twice as long, because nothing is sent back to "
    "them.",
    for_its_bytes,
)
