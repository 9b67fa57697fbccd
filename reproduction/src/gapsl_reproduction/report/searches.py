"""The searches of the learning rates, as far as they have come."""

from __future__ import annotations

from collections.abc import Mapping

from gapsl_reproduction.catalogue import LINES
from gapsl_reproduction.catalogue.tuning import Search, search
from gapsl_reproduction.planned import Planned
from gapsl_reproduction.report.evidence import Evidence

Searches = Mapping[str, Search]  # by line


def searches_of(evidence: Evidence) -> Mapping[tuple[str, str], Searches]:
    """Return the searches of lines, by workload and partition."""
    found: dict[tuple[str, str], dict[str, Search]] = {}
    for point in evidence.every_point():
        if point.searching:
            line = LINES[point.line].rates_of
            own = found.setdefault((point.workload, point.partition), {})
            own[line] = search(evidence.scale, point.workload, line, point.partition)
    return found


def validated(evidence: Evidence, run: Planned) -> float | None:
    """Return the share a run had right of the validation split, None if it is not there or failed."""
    result = evidence.results(run.key)
    if result is None or "failed" in result:
        return None
    return float(result["final"]["validation"]["device_mean"])
