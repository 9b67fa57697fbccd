"""Differences between methods, paired by seed, with an interval."""

from __future__ import annotations

from gapsl_reproduction.report.claims.comparing import lead, told
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.naming import PARTITIONS, line_name, workload_name
from gapsl_reproduction.report.page.markdown import paragraphs, table
from gapsl_reproduction.report.page.numbers import NOTHING

LEGEND = (
    "Points of accuracy, first minus second, for the seeds both have: the mean, and in parentheses its 95 % "
    "interval by Student's t, or the single values where there are fewer than 3 seeds."
)
PAIRS = (
    ("recommended", "sfl"),
    ("recommended", "frozen"),
    ("recommended", "psl"),
    ("recommended", "gapsl"),
    ("gapsl", "sfl"),
    ("gapsl", "epsl"),
    ("gapsl", "vanilla"),
    ("gapsl", "psl"),
    ("gapsl", "frozen"),
    ("frozen", "sfl"),
    ("frozen", "psl"),
    ("sfl", "psl"),
)


def cell(evidence: Evidence, first: Place, second: Place) -> str:
    """Return a difference as the page prints it."""
    values = lead(evidence, first, second)
    return told(values) if values else NOTHING


def pairs(evidence: Evidence) -> str:
    """Return a table of differences, a table a workload."""
    parts = [LEGEND]
    for workload in evidence.scale.workloads:
        rows = []
        for first, second in PAIRS:
            cells = [
                cell(evidence, *(Place(line, workload, key) for line in (first, second)))
                for key in ("non-iid", "iid")
            ]
            rows.append([f"{line_name(first)} − {line_name(second)}", *cells])
        headings = ["", *(PARTITIONS[key] for key in ("non-iid", "iid"))]
        parts += [f"**{workload_name(workload, evidence.scale)}**", table(headings, rows)]
    return paragraphs(*parts)
