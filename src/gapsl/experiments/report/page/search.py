"""The search of the learning rates: the grid, what every trial reached, and what was chosen."""

from __future__ import annotations

from gapsl.diagnosis.wording import listed
from gapsl.experiments.catalogue import LINES, Point
from gapsl.experiments.catalogue.scales import Rates
from gapsl.experiments.catalogue.tuning import SEED, ranked
from gapsl.experiments.report.evidence import Evidence
from gapsl.experiments.report.naming import line_name, workload_name
from gapsl.experiments.report.page.markdown import paragraphs, table
from gapsl.experiments.report.page.numbers import NOTHING
from gapsl.experiments.report.page.settings import flat, shown

Trials = dict[Rates, Point]


def trials(evidence: Evidence) -> dict[tuple[str, str, str], Trials]:
    """Return the runs of each search by rates, the searches by workload, partition and line."""
    found: dict[tuple[str, str, str], Trials] = {}
    for point in evidence.every_point():
        line = LINES[point.line].rates_of
        if point.searching and not point.final and point.rates is not None:
            found.setdefault((point.workload, point.partition, line), {})[point.rates] = point
    return found


def search(evidence: Evidence) -> str:
    """Return the section."""
    searches = trials(evidence)
    if not searches:
        return "Learning rates are not searched at this scale: they are the paper's."
    parts = [
        "Every method is tried with the same pairs of learning rates (devices' / server's), once for IID "
        f"data and once for alpha 0.1, with seed {SEED}; the pair with the best accuracy on the validation "
        "split (bold, mean over the devices, in %) is used for all seeds. Other partitions use the search "
        "whose labels are more like theirs; ablations use the rates of what they are an ablation of. "
        "`frozen` has no devices' rate to choose."
    ]
    for workload, whole in evidence.scale.workloads.items():
        for partition in dict.fromkeys(where for name, where, _ in searches if name == workload):
            own = {key[2]: tried for key, tried in searches.items() if key[:2] == (workload, partition)}
            differs = ", ".join(f"`{name}={shown(value)}`" for name, value in flat(whole.search).items())
            note = f" (trials: {differs})" if differs else ""
            parts += [
                f"**{workload_name(workload, evidence.scale)}, {partition}**{note}",
                grid_table(evidence, whole.rates, own),
                undecided(evidence, own),
            ]
    return paragraphs(*parts)


def grid_table(evidence: Evidence, grid: tuple[Rates, ...], searches: dict[str, Trials]) -> str:
    """Return the validation accuracies of a grid, a row a line, those chosen in bold."""
    headings = ["", *(f"{rates.device:g} / {rates.server:g}" for rates in grid)]
    rows = []
    for line, tried in searches.items():
        order = ranked({rates: point.run for rates, point in tried.items()}, evidence.results)
        best = order[0] if order else None
        cells = [trial(evidence, tried.get(rates), bold=rates == best) for rates in grid]
        rows.append([line_name(line), *cells])
    return table(headings, rows)


def undecided(evidence: Evidence, searches: dict[str, Trials]) -> str:
    """Say for which lines the search could not tell one pair from another."""
    found = []
    for line, tried in searches.items():
        reached = [validated(evidence, point) for point in tried.values()]
        if len(reached) > 1 and None not in reached and len(set(reached)) == 1:
            found.append(line_name(line))
    return f"All pairs did the same for {listed(found)}: the first is used." if found else ""


def validated(evidence: Evidence, point: Point) -> float | None:
    """Return what a trial reached on the validation split, None if it is not there or failed."""
    result = evidence.result(point)
    if result is None or "failed" in result:
        return None
    return float(result["final"]["validation"]["device_mean"])


def trial(evidence: Evidence, point: Point | None, *, bold: bool) -> str:
    """Return what one trial reached on the validation split."""
    if point is None:
        return ""
    reached = validated(evidence, point)
    if reached is None:
        return NOTHING if evidence.result(point) is None else "failed"
    return f"**{100 * reached:.1f}**" if bold else f"{100 * reached:.1f}"
