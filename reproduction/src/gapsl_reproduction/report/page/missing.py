"""What is missing: runs that were not done yet, or failed, by experiment."""

from __future__ import annotations

from gapsl.analysis.diagnosis.wording import listed
from gapsl_reproduction.catalogue import EXPERIMENTS, Point
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.page.markdown import bullets, paragraphs, table

FAILED = (
    "Runs that failed. They are missing in tables and curves, count as guessing where honest devices are "
    "compared among faulty ones, and as far as they went in `separation`:"
)


def missing(evidence: Evidence) -> str:
    """Return what is not there, or that nothing is missing."""
    rows, failures = [], {}
    for name, points in evidence.points.items():
        shown = [point for point in points if not point.searching]
        results = {point.place: evidence.result(point) for point in shown}
        absent = [point for point in shown if results[point.place] is None]
        for point in shown:
            result = results[point.place]
            if result is not None and "failed" in result:
                failures[point.run.name] = result["failed"]
        if absent:
            done = f"{len(shown) - len(absent)} of {len(shown)}"
            rows.append([name, EXPERIMENTS[name].shows, done, what(absent)])
    if not rows and not failures:
        return "Nothing: every run of every experiment at this scale is in."
    return paragraphs(
        table(["experiment", "shows", "runs", "missing"], rows, left=4) if rows else "No run is missing.",
        FAILED if failures else "",
        bullets(f"{name}: {reason}" for name, reason in failures.items()),
    )


def what(absent: list[Point]) -> str:
    """Say which lines runs are missing of."""
    counts: dict[str, int] = {}
    for point in absent:
        name = line_name(point.line)
        counts[name] = counts.get(name, 0) + 1
    searched = sum(not point.settled for point in absent)
    waiting = f"; {searched} wait for a search of learning rates" if searched else ""
    return listed([f"{name} ({count})" for name, count in counts.items()]) + waiting
