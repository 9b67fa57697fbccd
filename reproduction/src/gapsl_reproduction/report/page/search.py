"""The search of the learning rates: the grid, what every trial reached, and what was chosen."""

from __future__ import annotations

from gapsl.analysis.diagnosis.wording import listed
from gapsl.run.config import flat
from gapsl_reproduction.catalogue.scales import Rates
from gapsl_reproduction.catalogue.tuning import FINALISTS, SEED, Search
from gapsl_reproduction.planned import Planned
from gapsl_reproduction.report.evidence import Evidence
from gapsl_reproduction.report.naming import line_name, workload_name
from gapsl_reproduction.report.page.doubts import doubts
from gapsl_reproduction.report.page.markdown import bullets, paragraphs, table
from gapsl_reproduction.report.page.numbers import NOTHING
from gapsl_reproduction.report.page.settings import shown
from gapsl_reproduction.report.searches import Searches, searches_of, validated

STRUCTURE = (
    "Learning rates are all that is searched here. What `recommended` is made of (probes, steps, "
    "calibration, balance) was chosen in `docs/study.md`; nobody else's structure was searched, so that it "
    "had more search than the others. That half of the devices lead, and not all, was chosen for what noise "
    "does to the mean of all, seen on digits and then in the first run with noise here."
)


def search(evidence: Evidence) -> str:
    """Return the section."""
    found = searches_of(evidence)
    if not found:
        return (
            "Learning rates are not searched at this scale: they are the paper's, and for the devices of "
            "`recommended`, where they have SGD, the preset's."
        )
    partitions = listed([f"`{name}`" for name in evidence.scale.searched_on])
    parts = [
        "Every method is tried with the same pairs of learning rates (devices' / server's), for each of "
        f"{partitions}, in short trials with seed {SEED}. The best {FINALISTS} of them are run again at full "
        "length (behind the arrow), and the better of those (bold) is used for all seeds. Numbers are "
        "accuracies on the validation split, mean over the devices, in %. Other partitions use the search "
        "whose labels are more like theirs; ablations use the rates of what they are an ablation of, and "
        "`recommended` those of the same with everybody leading (`recommended unled`). `frozen` has no "
        "devices' rate to choose.",
        STRUCTURE,
    ]
    for (workload, partition), own in found.items():
        whole = evidence.scale.workloads[workload]
        differs = ", ".join(f"`{name}={shown(value)}`" for name, value in flat(whole.search).items())
        note = f" (trials: {differs})" if differs else ""
        parts += [
            f"**{workload_name(workload, evidence.scale)}, {partition}**{note}",
            grid_table(evidence, whole.rates, own),
            bullets(doubts(evidence, whole, own)),
        ]
    return paragraphs(*parts)


def grid_table(evidence: Evidence, grid: tuple[Rates, ...], searches: Searches) -> str:
    """Return the validation accuracies of a grid, a row a line, those chosen in bold."""
    headings = ["", *(f"{rates.device:g} / {rates.server:g}" for rates in grid)]
    rows = [
        [line_name(line), *(cell(evidence, own, rates) for rates in grid)] for line, own in searches.items()
    ]
    return table(headings, rows)


def cell(evidence: Evidence, search: Search, rates: Rates) -> str:
    """Return what a pair of rates reached: in its trial, and at full length where it came so far."""
    if rates not in search.trials:
        return ""
    trial = reached(evidence, search.trials[rates])
    finalists = search.finalists(evidence.results)
    if rates not in finalists:
        return trial
    final = reached(evidence, finalists[rates])
    return f"{trial} → **{final}**" if rates == search.chosen(evidence.results) else f"{trial} → {final}"


def reached(evidence: Evidence, run: Planned) -> str:
    """Return a run's accuracy in percent, or that there is none."""
    accuracy = validated(evidence, run)
    if accuracy is None:
        return NOTHING if evidence.results(run.key) is None else "failed"
    return f"{100 * accuracy:.1f}"
