"""What a search of learning rates could not tell: pairs at an edge, near chance, or near the runner-up."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from gapsl_reproduction.catalogue import Workload
from gapsl_reproduction.catalogue.tuning import Search
from gapsl_reproduction.planned import Planned
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.searches import Searches, validated

NEAR = 2.0  # standard errors within which accuracies are not told apart


def doubts(evidence: Evidence, whole: Workload, searches: Searches) -> list[str]:
    """Say whose chosen rates may not be the best, and why."""
    decided = {line_name(line): own for line, own in searches.items() if own.chosen(evidence.results)}
    edges = [f"{name} ({where})" for name, own in decided.items() if (where := edge(evidence, own))]
    found = [("At an edge of the grid, beyond which a better pair may lie", edges)]
    samples = held_out(whole)
    if samples is not None:
        within = f"within {NEAR:g} standard errors on {samples:,} samples"
        guessing = [name for name, own in decided.items() if near_chance(evidence, own, samples)]
        level = [name for name, own in decided.items() if near_second(evidence, own, samples)]
        found += [
            (f"No trial told from guessing ({within})", guessing),
            (f"Not told from the runner-up ({within})", level),
        ]
    return [f"{what}: {'; '.join(names)}." for what, names in found if names]


def edge(evidence: Evidence, search: Search) -> str:
    """Say at which ends of the rates that were tried the chosen ones are; nothing if they lie between."""
    chosen = search.chosen(evidence.results)
    found = []
    for half, index in (("devices'", 0), ("server's", 1)):
        tried = sorted({rates[index] for rates in search.trials})
        if chosen is not None and len(tried) > 1 and chosen[index] in (tried[0], tried[-1]):
            found.append(f"{half} {'lowest' if chosen[index] == tried[0] else 'highest'}")
    return " and ".join(found)


def held_out(whole: Workload) -> int | None:
    """Return how many samples the validation split has, None where the settings do not say."""
    samples = whole.settings.get("train_samples")
    return None if samples is None else round(samples * whole.settings["validation"])


def near_chance(evidence: Evidence, search: Search, samples: int) -> bool:
    """Say whether not even the best trial is told from guessing."""
    results = [evidence.results(run.key) for run in search.trials.values()]
    classes = max(len(result["label_counts"][0]) for result in results if result is not None)
    best = reached(evidence, search.trials.values())[:1]
    return not best or best[0] - 1 / classes < NEAR * error(1 / classes, samples)


def near_second(evidence: Evidence, search: Search, samples: int) -> bool:
    """Say whether the best run at full length is not told from the second."""
    best = reached(evidence, search.finalists(evidence.results).values())[:2]
    if len(best) < 2:
        return False
    first, second = best
    return first - second < NEAR * sqrt(error(first, samples) ** 2 + error(second, samples) ** 2)


def reached(evidence: Evidence, runs: Iterable[Planned]) -> list[float]:
    """Return the accuracies of runs that finished, the best first."""
    known = [validated(evidence, run) for run in runs]
    return sorted((accuracy for accuracy in known if accuracy is not None), reverse=True)


def error(accuracy: float, samples: int) -> float:
    """Return the standard error of an accuracy on so many samples."""
    return sqrt(accuracy * (1 - accuracy) / samples)
