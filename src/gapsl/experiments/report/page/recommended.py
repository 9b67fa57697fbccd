"""What is recommended, against the rest and against itself with parts taken away."""

from __future__ import annotations

from gapsl.experiments.catalogue import RECOMMENDED
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.naming import line_name, workload_name
from gapsl.experiments.report.page.markdown import paragraphs, table
from gapsl.experiments.report.page.numbers import accuracy_cell
from gapsl.experiments.report.page.pairs import cell
from gapsl.experiments.report.page.settings import flat, shown
from gapsl.experiments.report.shown import same_as

ROWS = (
    "recommended sfl",
    "recommended psl",
    "recommended non-lgi",
    "recommended rand-lgi",
    "recommended non-gda",
    "recommended rand-gda",
    "gapsl",
    "sfl",
    "epsl",
    "vanilla",
    "psl",
    "frozen",
    "central",
)
LEGEND = (
    "`recommended` is the aggregation-free configuration we would use; `recommended PSL` is the same "
    "without any alignment, `recommended SFL` averages the halves and has all the rest of it, and the "
    "others take its parts away as the paper's ablations do. The last column is `recommended` minus the "
    "line, paired by seed."
)


def recommended(evidence: Evidence) -> str:
    """Return a table of the recommended settings against everything else, CIFAR-10 at alpha 0.1."""
    same = same_as("recommended")
    note = ""
    if same is not None:
        note = (
            f"At present the recommended settings are those of {line_name(same)}: the two are the same runs, "
            "and the tables and figures show them once."
        )
    ours = Place("recommended")
    rows = [["**recommended**", accuracy_cell(evidence, ours), ""]]
    rows += [
        [line_name(line), accuracy_cell(evidence, Place(line)), cell(evidence, ours, Place(line))]
        for line in ROWS
        if line != same
    ]
    settings = ", ".join(f"`{name}={shown(value)}`" for name, value in flat(RECOMMENDED).items())
    return paragraphs(
        LEGEND,
        f"Its settings, over the workload's: {settings}.",
        note,
        f"**{workload_name('cifar10', evidence.scale)}, non-IID**",
        table(["", "accuracy", "recommended − it"], rows),
    )
