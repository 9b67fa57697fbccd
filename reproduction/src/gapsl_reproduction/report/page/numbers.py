"""Numbers as the page prints them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import accuracy, by_seed, ensemble
from gapsl_reproduction.report.spread import Estimate, estimate

NOTHING = "–"
APART = 2.0  # points between the mean of the devices and their ensemble that are worth telling


def spread(found: Estimate | None, digits: int = 1) -> str:
    """Return "45.2 ± 0.8 (3)": the mean, the standard deviation over seeds, and how many seeds."""
    if found is None:
        return NOTHING
    deviation = "" if found.std is None else f" ± {found.std:.{digits}f}"
    return f"{found.mean:.{digits}f}{deviation} ({found.seeds})"


def accuracy_cell(evidence: Evidence, place: Place, *, bold: bool = False) -> str:
    """Return a place's accuracy, with that of the ensemble behind it where the two are far apart."""
    runs = evidence.runs(place)
    found = estimate(by_seed(runs, accuracy))
    if found is None:
        return "failed" if evidence.failed(place) else NOTHING
    together = estimate(by_seed(runs, ensemble))
    told = f"**{spread(found)}**" if bold else spread(found)
    if together is not None and abs(together.mean - found.mean) > APART:
        told += f" [{together.mean:.1f}]"
    return told


def best(evidence: Evidence, places: Mapping[str, Place]) -> str | None:
    """Return the line with the highest mean accuracy over the seeds that all have which have any.

    What needs all data in one place does not compete.
    """
    own = {
        line: by_seed(evidence.runs(place), accuracy) for line, place in places.items() if line != "central"
    }
    known = {line: values for line, values in own.items() if values}
    shared = set.intersection(*map(set, known.values())) if len(known) > 1 else set()
    return max(known, key=lambda line: fmean(known[line][seed] for seed in shared)) if shared else None
