"""What is recommended, against the rest and against itself with parts taken away."""

from __future__ import annotations

from gapsl.run.config import flat
from gapsl_reproduction.catalogue import LINES, RECOMMENDED
from gapsl_reproduction.catalogue.lines import PARTS
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.naming import line_name, part_name, workload_name
from gapsl_reproduction.report.page.markdown import paragraphs, table
from gapsl_reproduction.report.page.numbers import accuracy_cell
from gapsl_reproduction.report.page.pairs import cell
from gapsl_reproduction.report.page.settings import shown

RATES = ("device_optimizer.lr", "server_optimizer.lr")
OTHERS = ("gapsl", "sfl", "epsl", "vanilla", "psl", "frozen", "central")
LEGEND = (
    "`recommended` is the aggregation-free configuration we would use. First what it is against the others, "
    "each with its own learning rates; then what it is with a part taken away or added, with its learning "
    "rates unless it says *own rates*. The last column is `recommended` minus the line, paired by seed."
)


def part_row(line: str) -> str:
    """Return the name of a line with a part taken away or added, and whether its rates are searched."""
    return part_name(line) + (
        ", *own rates*" if LINES[line].rates_of != LINES["recommended"].rates_of else ""
    )


def recommended(evidence: Evidence) -> str:
    """Return a table of the recommended settings against everything else, CIFAR-10 at alpha 0.1."""
    ours = Place("recommended")
    rows = [["**recommended**", accuracy_cell(evidence, ours), ""]]
    named = {line: line_name(line) for line in OTHERS}
    named |= {line: part_row(line) for line in PARTS if line != "recommended"}
    rows += [
        [name, accuracy_cell(evidence, Place(line)), cell(evidence, ours, Place(line))]
        for line, name in named.items()
    ]
    searched = evidence.scale.workloads["cifar10"].rates
    named = {name: value for name, value in flat(RECOMMENDED).items() if not (searched and name in RATES)}
    settings = ", ".join(f"`{name}={shown(value)}`" for name, value in named.items())
    rates = "; its learning rates are those searched for the same with everybody leading" if searched else ""
    return paragraphs(
        LEGEND,
        f"Its settings, over the workload's: {settings}{rates}.",
        f"**{workload_name('cifar10', evidence.scale)}, non-IID**",
        table(["", "accuracy", "recommended − it"], rows),
    )
