"""Tables I to III: our accuracies and epochs next to the paper's."""

from __future__ import annotations

from collections.abc import Mapping

from gapsl_reproduction import paper
from gapsl_reproduction.catalogue.lines import TABLE
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.measures import accuracy, by_seed, converged, converged_rounds
from gapsl_reproduction.report.naming import PARTITIONS, line_name, workload_name
from gapsl_reproduction.report.page.markdown import paragraphs, table
from gapsl_reproduction.report.page.numbers import NOTHING, accuracy_cell, best, spread
from gapsl_reproduction.report.schedules import caution
from gapsl_reproduction.report.spread import estimate

LEGEND = (
    "Test accuracy in %, mean over the devices (each with its own half), then mean ± standard deviation "
    "over (so many) seeds. In brackets the ensemble of the devices where it is more than 2 points away. "
    "Bold: the best of ours over the seeds that all in the column have, `central` aside, which has all data "
    "in one place. *paper*: what the paper prints, for larger models trained longer on all of CIFAR. "
    "`frozen`: PSL whose devices' halves stay as they begin. An epoch is a pass over the data; some rows of "
    "each batch of `recommended` are probes, so that its epochs have more rounds."
)

Columns = Mapping[str, tuple[str, str | None, str | None]]  # partition, sweep and point, by heading


def headline(evidence: Evidence) -> str:
    """Return the accuracies that matter most, the best first, in a sentence."""
    found = {
        line: each
        for line in TABLE
        if (each := estimate(by_seed(evidence.runs(Place(line)), accuracy))) is not None
    }
    if not found:
        return ""
    ordered = sorted(found, key=lambda line: -found[line].mean)
    told = ", ".join(f"{line_name(line)} {found[line].mean:.1f} ({found[line].seeds})" for line in ordered)
    name = workload_name("cifar10", evidence.scale)
    return f"{name}, alpha 0.1, accuracy in % (mean over so many seeds): {told}."


def table1(evidence: Evidence) -> str:
    """Return Table I: accuracy and epochs, a table a workload."""
    parts = []
    columns: Columns = {PARTITIONS[key]: (key, None, None) for key in ("non-iid", "iid")}
    for workload in evidence.scale.workloads:
        theirs = {PARTITIONS[key]: paper.ACCURACY[workload, key] for key in PARTITIONS}
        times = {PARTITIONS[key]: paper.EPOCHS[workload, key] for key in PARTITIONS}
        name = workload_name(workload, evidence.scale)
        parts += [
            f"**{name}: accuracy**",
            accuracies(evidence, workload, columns, theirs),
            f"**{name}: epochs and rounds to converge**",
            caution(evidence.scale, workload),
            epochs(evidence, workload, columns, times),
        ]
    return paragraphs(*parts)


def table2(evidence: Evidence) -> str:
    """Return Table II: accuracy by number of devices, IID and not."""
    parts = []
    for partition in ("non-iid", "iid"):
        columns: Columns = {at: (partition, "devices", at) for at in evidence.sweep("devices")}
        theirs = {at: paper.BY_DEVICES.get((partition, int(at)), {}) for at in columns}
        name = workload_name("cifar10", evidence.scale)
        parts += [
            f"**{name}, {PARTITIONS[partition]}: accuracy by number of devices**",
            accuracies(evidence, "cifar10", columns, theirs),
        ]
    return paragraphs(*parts)


def table3(evidence: Evidence) -> str:
    """Return Table III: accuracy by alpha, with Table I's alpha 0.1 at its end."""
    parts = []
    for workload in evidence.scale.workloads:
        columns: Columns = {
            f"{alpha:g}": (place.partition, place.sweep, place.at)
            for alpha, place in evidence.over_alpha("gapsl", workload).items()
        }
        theirs = {at: paper.BY_ALPHA.get((workload, float(at)), {}) for at in columns}
        theirs["0.1"] = paper.ACCURACY[workload, "non-iid"]
        name = workload_name(workload, evidence.scale)
        parts += [f"**{name}: accuracy by alpha**", accuracies(evidence, workload, columns, theirs)]
    return paragraphs(*parts)


def accuracies(evidence: Evidence, workload: str, columns: Columns, theirs: Mapping[str, paper.Row]) -> str:
    """Return a table of accuracies, ours and the paper's in turn."""
    places = {
        heading: {line: Place(line, workload, *where) for line in TABLE} for heading, where in columns.items()
    }
    highest = {heading: best(evidence, own) for heading, own in places.items()}
    rows = []
    for line in TABLE:
        cells = [line_name(line)]
        for heading in columns:
            place = places[heading][line]
            cells.append(accuracy_cell(evidence, place, bold=highest[heading] == line))
            number = theirs[heading].get(line)
            cells.append(NOTHING if number is None else f"{number:.1f}")
        rows.append(cells)
    return table(["", *(name for heading in columns for name in (heading, "paper"))], rows)


def epochs(evidence: Evidence, workload: str, columns: Columns, theirs: Mapping[str, paper.Row]) -> str:
    """Return a table of the epochs and the rounds to converge, with the paper's epochs."""
    rows = []
    for line in TABLE:
        cells = [line_name(line)]
        for heading, where in columns.items():
            runs = evidence.runs(Place(line, workload, *where))
            number = theirs[heading].get(line)
            cells += [
                spread(estimate(by_seed(runs, converged))),
                spread(estimate(by_seed(runs, converged_rounds)), digits=0),
                NOTHING if number is None else f"{number:.0f}",
            ]
        rows.append(cells)
    headings = [name for heading in columns for name in (heading, "rounds", "paper")]
    return table(["", *headings], rows)
