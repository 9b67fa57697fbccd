"""Whether faulty devices are told apart and kept from leading, which the paper claims and does not test."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gapsl.analysis.diagnosis.wording import percent
from gapsl_reproduction.catalogue.contents import CALIBRATED_OR_NOT
from gapsl_reproduction.report.claims.claim import Claim, Part
from gapsl_reproduction.report.claims.comparing import difference_part
from gapsl_reproduction.report.claims.deciding import State
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.faulty import (
    KINDS,
    by_gradients,
    ends,
    fault_places,
    honest_or_guessing,
    with_most_faults,
)
from gapsl_reproduction.report.measures import (
    accuracy_without,
    by_seed,
    faulty_devices,
    over_devices,
)
from gapsl_reproduction.report.naming import seeds_name
from gapsl_reproduction.report.spread import Values, minus
from gapsl_reproduction.store import Result

HALF = 0.5  # of how often an honest device leads
NO_MARGIN = 100.0  # one pair of devices is several points: fewer seeds than an interval takes tell nothing


def losses(evidence: Evidence, line: str, kind: str) -> tuple[Values, Values]:
    """Return the accuracy of the honest devices among the most faulty ones, and what they lose to those."""
    places = fault_places(evidence, line, kind)
    clean, faulty = evidence.runs(places[0]), evidence.tried(places[max(places)])
    before = {
        seed: value
        for seed, result in faulty.items()
        if seed in clean and (value := accuracy_without(clean[seed], faulty_devices(result))) is not None
    }
    after = by_seed(faulty, honest_or_guessing)
    return after, minus(before, after)


def leading(results: Sequence[Result]) -> tuple[float, float] | None:
    """Return how often faulty and honest devices are among the leaders, mean over runs."""
    bad, good = [], []
    for result in results:
        faulty = faulty_devices(result)
        shares = over_devices(result, "leader_share")
        bad += [share for device, share in enumerate(shares) if share is not None and device in faulty]
        good += [share for device, share in enumerate(shares) if share is not None and device not in faulty]
    return (fmean(bad), fmean(good)) if bad and good else None


def filters_noise(evidence: Evidence) -> Sequence[Part]:
    """See whether faulty devices lead less, and whether GAPSL loses less to them than PSL."""
    found = []
    for kind, name in KINDS.items():
        ours, theirs = (fault_places(evidence, line, kind) for line in ("gapsl", "psl"))
        count = max(ours)
        (own, lost), (other, lost_there) = (losses(evidence, line, kind) for line in ("gapsl", "psl"))
        gained = minus(lost_there, lost)
        left = {"PSL": other, "GAPSL": own}
        means = [f"{line} {mean_of(values, gained):.1f} %" for line, values in left.items() if gained]
        told = [*means, *failures(evidence, gained, theirs[count], ours[count])]
        text = f"{count} with {name}: PSL's honest devices lose more than GAPSL's"
        found.append(difference_part(text + (f" ({', '.join(told)})" if told else ""), gained))
        found.append(led(evidence, [place for faults, place in ours.items() if faults], name))
    return found


def mean_of(values: Values, shared: Values) -> float:
    """Return the mean of values over the seeds that a comparison has."""
    return fmean(values[seed] for seed in shared)


def failures(evidence: Evidence, compared: Values, *places: Place) -> list[str]:
    """Say which runs failed of those that are compared."""
    shared = evidence.restricted(compared)
    return [words for place in places if (words := ends(shared, place))]


def separates(evidence: Evidence) -> Sequence[Part]:
    """Compare what angles between gradients tell with calibration and without, by kind of fault."""
    found = []
    for kind, name in KINDS.items():
        places = [with_most_faults(evidence, line, kind) for line in CALIBRATED_OR_NOT]
        known = [{} if place is None else by_seed(evidence.tried(place), by_gradients) for place in places]
        gained = minus(*known)
        values = " against ".join(f"{mean_of(own, gained):.0f} %" for own in known) if gained else ""
        text = f"{name}, pairs told apart" + (f" ({values})" if values else "")
        found.append(difference_part(text, gained, margin=NO_MARGIN))
    return found


SEPARATES = Claim(
    "calibration-separates",
    "Angles between gradients tell faulty devices from honest ones better after calibration",
    "",
    "CIFAR-10, alpha 0.1, PSL with both halves calibrated against PSL, as many devices faulty as are tried: "
    "the share of pairs of a faulty and an honest device in which the faulty one's mean angle to the others "
    "is the larger, in points.",
    separates,
)


def led(evidence: Evidence, places: Sequence[Place], name: str) -> Part:
    """Return whether faulty devices lead much less often than honest ones."""
    runs = [evidence.runs(place) for place in places]
    shares = leading([result for own in runs for result in own.values()])
    if shares is None:
        return Part(f"{name}, who leads: not measured", State.MISSING)
    seeds = min(len(own) for own in runs if own)
    text = (
        f"{name}: a faulty device is among the leaders in {percent(shares[0])} of its rounds, "
        f"an honest one in {percent(shares[1])} ({seeds_name(seeds)})"
    )
    return Part(text, State.of(shares[0] <= HALF * shares[1]), seeds)


CLAIMS = (
    Claim(
        "filters-noise",
        "LGI filters outliers and adversarial noise",
        "Section III-B, no experiment",
        "CIFAR-10, alpha 0.1, for flipped gradients, random labels and noise for activations: with the most "
        "faulty devices PSL's honest ones lose more accuracy than GAPSL's; and faulty devices are among the "
        "leaders at most half as often as honest ones. A run that fails counts as guessing.",
        filters_noise,
    ),
)
