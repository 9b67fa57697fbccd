"""The readings of what the paper leaves open, each against ours."""

from __future__ import annotations

from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.figures.ours import joined
from gapsl_reproduction.report.page.markdown import table
from gapsl_reproduction.report.page.numbers import accuracy_cell
from gapsl_reproduction.report.page.pairs import cell


def readings(evidence: Evidence) -> str:
    """Return a table of readings with their differences to ours, paired by seed; nothing if none was run."""
    (ours, base), *others = joined(evidence).items()
    if not evidence.runs(base):
        return ""
    rows = [[f"**{ours}**", accuracy_cell(evidence, base), ""]]
    rows += [[name, accuracy_cell(evidence, place), cell(evidence, place, base)] for name, place in others]
    return table(["GAPSL", "accuracy", "it − our reading"], rows)
