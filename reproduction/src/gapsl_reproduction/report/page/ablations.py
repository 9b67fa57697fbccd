"""The ablations of GAPSL as a table."""

from __future__ import annotations

from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.naming import line_name, workload_name
from gapsl_reproduction.report.page.markdown import paragraphs, table
from gapsl_reproduction.report.page.numbers import accuracy_cell
from gapsl_reproduction.report.page.pairs import cell

VARIANTS = ("non-lgi", "rand-lgi", "non-gda", "rand-gda", "psl", "frozen", "central")
LEGEND = (
    "GAPSL at alpha 0.1 with the mean of all gradients as its leader (Non-LGI) or of some at random "
    "(Rand-LGI), stepping on the leader alone (Non-GDA), or keeping as many devices at random (Rand-GDA). "
    "All have GAPSL's learning rates; PSL, `frozen` and `central` have their own. The paper gives no "
    "numbers here."
)


def ablations(evidence: Evidence) -> str:
    """Return accuracies, and how far GAPSL is above each variant."""
    workloads = list(evidence.scale.workloads)
    headings = [""]
    for workload in workloads:
        headings += [workload_name(workload, evidence.scale), "GAPSL − it"]
    rows = [["GAPSL"]]
    for workload in workloads:
        rows[0] += [accuracy_cell(evidence, Place("gapsl", workload)), ""]
    for variant in VARIANTS:
        cells = [line_name(variant)]
        for workload in workloads:
            places = Place("gapsl", workload), Place(variant, workload)
            cells += [accuracy_cell(evidence, places[1]), cell(evidence, *places)]
        rows.append(cells)
    return paragraphs(LEGEND, table(headings, rows))
