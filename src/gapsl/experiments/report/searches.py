"""The searches of the learning rates, as far as they have come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gapsl.experiments.catalogue import LINES, Point
from gapsl.experiments.catalogue.scales import Rates
from gapsl.experiments.catalogue.tuning import ranked
from gapsl.experiments.report.evidence import Evidence


@dataclass(frozen=True)
class Search:
    """The runs by which a line's rates for a partition are chosen."""

    trials: dict[Rates, Point] = field(default_factory=dict)
    finals: dict[Rates, Point] = field(default_factory=dict)  # the best of those, at full length

    def chosen(self, evidence: Evidence) -> Rates | None:
        """Return the rates that are used, None before they are chosen."""
        order = ranked({rates: point.run for rates, point in self.finals.items()}, evidence.results)
        return order[0] if order else None


Searches = Mapping[str, Search]  # by line


def searches_of(evidence: Evidence) -> Mapping[tuple[str, str], Searches]:
    """Return the searches of lines, by workload and partition."""
    found: dict[tuple[str, str], dict[str, Search]] = {}
    for point in evidence.every_point():
        if point.searching and point.rates is not None:
            own = found.setdefault((point.workload, point.partition), {})
            search = own.setdefault(LINES[point.line].rates_of, Search())
            (search.finals if point.final else search.trials)[point.rates] = point
    return found


def validated(evidence: Evidence, point: Point) -> float | None:
    """Return the share a run had right of the validation split, None if it is not there or failed."""
    result = evidence.result(point)
    if result is None or "failed" in result:
        return None
    return float(result["final"]["validation"]["device_mean"])
