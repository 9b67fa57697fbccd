"""The page: its numbers are the store's, it says what is missing, and the committed one is up to date."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gapsl_reproduction import paper
from gapsl_reproduction.catalogue import EXPERIMENTS, SCALES, Point, Scale
from gapsl_reproduction.catalogue.lines import TABLE
from gapsl_reproduction.catalogue.scales import Rates, rates
from gapsl_reproduction.report.claims import CLAIMS
from gapsl_reproduction.report.contradictions import CONTRADICTIONS
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.figures import FIGURES
from gapsl_reproduction.report.naming import line_name
from gapsl_reproduction.report.page.exclusion import reached, starved
from gapsl_reproduction.report.page.numbers import accuracy_cell, best
from gapsl_reproduction.report.page.pairs import cell
from gapsl_reproduction.report.page.whole import page
from gapsl_reproduction.store import Store
from made_up import Made, result_of

ROOT = Path(__file__).parents[3]
REDUCED = SCALES["reduced"]

Rows = dict[str, list[str]]


def varied(point: Point) -> float:
    """Give every run an accuracy of its own, more of it to later lines."""
    rank = TABLE.index(point.line) if point.line in TABLE else 3
    tried = (
        0.01 * point.rates.device if point.searching and not point.final and point.rates is not None else 0.0
    )
    return 0.3 + 0.04 * rank + 0.013 * point.seed + 0.02 * len(point.partition) / 10 + tried


@pytest.fixture(scope="module")
def whole() -> Made:
    return Made(REDUCED).fill(varied)


@pytest.fixture(scope="module")
def text(whole: Made) -> str:
    return page(whole.evidence(), "figures")


def section(text: str, title: str) -> str:
    """Return what is between a heading and the next."""
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def tables(text: str) -> dict[str, Rows]:
    """Return the tables of a section by the bold line above each, rows by their first cell."""
    found: dict[str, Rows] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("**"):
            title = line
        elif line.startswith("| "):
            first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(title, {})[first] = cells
    return found


def test_table_1_has_the_stores_numbers_beside_the_papers(whole: Made, text: str) -> None:
    found = tables(section(text, "Table I: accuracy and time"))["**CIFAR-10, VGG-16: accuracy**"]
    evidence = whole.evidence()
    assert {"frozen", "central"} <= set(found)
    for line in TABLE:
        for column, partition in ((0, "non-iid"), (2, "iid")):
            runs = evidence.runs(Place(line, partition=partition)).values()
            each = [100 * result["final"]["device_mean"] for result in runs]
            assert len(each) >= 3
            ours = f"{statistics.mean(each):.1f} ± {statistics.stdev(each):.1f} ({len(each)})"
            assert ours in found[line_name(line)][column]
            printed = paper.ACCURACY["cifar10", partition].get(line)
            assert found[line_name(line)][column + 1] == ("–" if printed is None else f"{printed:.1f}")


def test_an_ensemble_is_shown_where_it_is_far_from_the_devices(text: str) -> None:
    found = tables(section(text, "Table I: accuracy and time"))["**CIFAR-10, VGG-16: accuracy**"]
    assert re.search(r"\(\d\)\**\s\[\d+\.\d\]$", found["PSL"][0])
    assert "[" not in found["SFL"][0]


def test_epochs_devices_and_alphas_stand_beside_the_papers(text: str) -> None:
    epochs = tables(section(text, "Table I: accuracy and time"))[
        "**CIFAR-10, VGG-16: epochs and rounds to converge**"
    ]
    assert epochs[""] == ["non-IID", "rounds", "paper", "IID", "rounds", "paper"]
    assert epochs["SFL"][:3] == ["3.0 ± 0.0 (5)", "30 ± 0 (5)", "42"]
    assert epochs["SFL"][3:] == ["3.0 ± 0.0 (3)", "30 ± 0 (3)", "27"]
    devices = tables(section(text, "Table II: number of devices"))
    (skewed,) = (rows for title, rows in devices.items() if "non-IID" in title)
    assert skewed[""] == ["10", "paper", "40", "paper"]
    assert skewed["GAPSL"][1::2] == ["63.3", "61.7"]
    alphas = tables(section(text, "Table III: label skew"))["**CIFAR-10, VGG-16: accuracy by alpha**"]
    assert alphas[""] == ["0.9", "paper", "0.3", "paper", "0.1", "paper"]
    assert alphas["PSL"][1::2] == ["81.3", "53.5", "47.3"]
    for rows in (*devices.values(), alphas):
        assert {"frozen", "central"} <= set(rows)


def test_differences_are_paired_by_seed(text: str) -> None:
    """Every line's accuracy grows by the same with the seed: all differences are the same for all seeds."""
    found = tables(section(text, "Differences, paired by seed"))
    assert found["**CIFAR-10, VGG-16**"]["SFL − PSL"][0] == "−12.0 (−12.0 to −12.0; 3 seeds)"
    assert found["**CIFAR-100, ViT**"]["SFL − PSL"][0] == "−12.0 (1 seed)"


def test_what_a_schedule_does_to_convergence_is_told(text: str) -> None:
    told = section(text, "Table I: accuracy and time")
    assert told.count("The learning rates fall by a cosine schedule") == 1, "not on CIFAR-100"
    judged = section(text, "In short")
    assert re.search(
        r"^\| GAPSL converges in the fewest epochs on CIFAR-10 .* \| not judged at this scale: ", judged, re.M
    )


def test_the_search_shows_every_trial_and_what_was_chosen(whole: Made, text: str) -> None:
    found = tables(section(text, "Learning rates"))
    (skewed,) = (rows for title, rows in found.items() if "CIFAR-10," in title and "dirichlet:0.1" in title)
    points = [p for p in whole.points("psl-vs-sfl") if p.searching and p.line == "psl"]

    def told(point: Point) -> str:
        return f"{100 * whole.results[point.run.key]['final']['validation']['device_mean']:.1f}"

    expected = {point.rates: told(point) for point in points if not point.final}
    finals = [point for point in points if point.final]
    assert len(finals) == 2
    # Made up so that the first rates are the best.
    expected[finals[0].rates] += f" → **{told(finals[0])}**"
    expected[finals[1].rates] += f" → {told(finals[1])}"
    assert skewed["PSL"] == list(expected.values())
    assert "" in skewed["frozen"], "only the server's rate is searched"


def test_the_search_says_whose_structure_was_searched(text: str) -> None:
    told = section(text, "Learning rates")
    assert "docs/study.md" in told and "nobody else's structure was searched" in told


MIDDLE = Rates(0.01, 0.02)
GRID = replace(
    REDUCED,
    workloads={
        **REDUCED.workloads,
        "cifar10": replace(REDUCED.workloads["cifar10"], rates=rates((0.1, 0.01, 0.001), (0.05, 0.02, 0.01))),
    },
)


def doubts_of(rule: Callable[[Point], float]) -> str:
    """Return what is said of the searches at alpha 0.1 if their trials have these accuracies."""
    made = Made(GRID).fill(lambda point: rule(point) if point.searching else 0.5, "psl-vs-sfl")
    told = section(page(made.evidence(), None), "Learning rates").split("**CIFAR-10, VGG-16, ")
    (own,) = (part for part in told if part.startswith("dirichlet:0.1"))
    return own


def test_rates_at_an_edge_of_the_grid_are_told() -> None:
    def at(*best: Rates) -> str:
        return doubts_of(lambda point: 0.4 if point.rates in best else 0.2)

    assert "At an edge" not in at(MIDDLE)
    assert "may lie: SFL (devices' highest); PSL (devices' highest)." in at(Rates(0.1, 0.02))
    assert "PSL (devices' lowest and server's highest)" in at(Rates(0.001, 0.05))


def test_a_search_near_chance_is_told() -> None:
    """Two standard errors of a tenth on 1,000 samples are 1.9 points."""
    assert "No trial told from guessing" not in doubts_of(
        lambda point: 0.12 if point.rates == MIDDLE else 0.1
    )
    told = doubts_of(lambda point: 0.118 if point.rates == MIDDLE else 0.1)
    assert "No trial told from guessing (within 2 standard errors on 1,000 samples): SFL; PSL." in told


def test_a_runner_up_that_is_as_good_is_told() -> None:
    """Two standard errors of the difference of two halves on 1,000 samples are 4.5 points."""

    def second(accuracy: float) -> str:
        made = Made(GRID).fill(lambda point: 0.5, "psl-vs-sfl")
        for point in made.points("psl-vs-sfl"):
            if point.final and made.results[point.run.key]["final"]["device_mean"] == 0.0:
                made.results[point.run.key] = result_of(point, accuracy)
        return page(made.evidence(), None)

    named = "Not told from the runner-up (within 2 standard errors on 1,000 samples): SFL; PSL."
    assert named in second(0.46)
    assert named not in second(0.45)


def test_what_is_best_is_so_over_the_seeds_that_all_have() -> None:
    """SFL has two seeds more, and with them a higher mean."""
    made = Made(REDUCED).fill(
        lambda point: {"psl": 0.5, "sfl": 0.48}.get(point.line, 0.2) + 0.2 * (point.seed > 2), "table1"
    )
    rows = tables(section(page(made.evidence(), None), "Table I: accuracy and time"))
    found = rows["**CIFAR-10, VGG-16: accuracy**"]
    assert found["SFL"][0].startswith("56.0 ±")
    assert found["PSL"][0].startswith("**50.0 ± 0.0 (3)**")
    assert "**" not in found["SFL"][0]


def test_nothing_is_best_where_no_seed_is_shared() -> None:
    made = Made(REDUCED).fill(varied, "cost")
    made.drop(lambda point: (point.line, point.seed) in (("psl", 1), ("frozen", 2)))
    evidence = made.evidence().restricted([1, 2])
    psl, frozen, sfl = ({line: Place(line)} for line in ("psl", "frozen", "sfl"))
    assert best(evidence, sfl | frozen) == "frozen"
    assert best(evidence, psl | frozen) is None
    assert best(evidence, sfl) is None, "alone there is no best"
    assert best(evidence, sfl | frozen | {"epsl": Place("epsl", "cifar100")}) == "frozen", (
        "with nothing, no rival"
    )


def test_sfl_is_said_to_have_converged_in_short(text: str) -> None:
    told = section(text, "In short")
    assert "**SFL has clearly converged**: *holds (1 to 3 seeds)*." in told
    assert "- yes: gained from 800 to 1600 rounds: SFL +0.0 (" in told


def test_lines_with_rates_of_their_own_say_so(text: str) -> None:
    rows = tables(section(text, "What is recommended"))["**CIFAR-10, VGG-16, non-IID**"]
    assert {"without probes, *own rates*", "everybody leads"} <= set(rows)


def test_every_claim_figure_and_contradiction_is_there(text: str) -> None:
    for claim in CLAIMS:
        assert text.count(claim.says) >= 2, "in short, and one by one"
    for name in FIGURES:
        assert f"(figures/{name}.png)" in text
    for told in CONTRADICTIONS:
        assert told in text
    assert "Nothing: every run of every experiment" in section(text, "What is missing")


def test_what_the_paper_prints_against_itself() -> None:
    words = " ".join(CONTRADICTIONS)
    for numbers in (
        "36 epochs against vanilla SL's 29",
        "41.2 % at alpha 0.3",
        "43.2 % at alpha 0.1",
        "15.7 points",
    ):
        assert numbers in words


def test_readings_stand_beside_ours_with_their_difference(whole: Made, text: str) -> None:
    evidence = whole.evidence()
    ours, other = (Place("gapsl", sweep="readings", at=at) for at in ("our reading", "eta 1"))
    assert len(evidence.runs(other)) == 3
    assert f"| eta 1 | {accuracy_cell(evidence, other)} | {cell(evidence, other, ours)} |" in text
    empty = page(Made(REDUCED).evidence(), "figures")
    assert "it − our reading" in text and "it − our reading" not in empty


def test_without_figures_nothing_is_linked(whole: Made) -> None:
    assert "![" not in page(whole.evidence(), None)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_an_empty_store_makes_a_page_that_says_so(scale: Scale) -> None:
    text = page(Made(scale).evidence(), "figures")
    unjudged = text.count("| not judged at this scale")
    assert f"{unjudged} not judged, {len(CLAIMS) - unjudged} not measured yet." in text
    assert "![" not in text
    for name in EXPERIMENTS:
        assert re.search(rf"^\| {name} \| .* \| 0 of \d+ \| ", section(text, "What is missing"), re.M)


def test_missing_and_failed_runs_are_named(whole: Made) -> None:
    made = Made(REDUCED)
    made.results = dict(whole.results)
    made.drop(lambda point: point.line == "epsl" and point.sweep == "devices" and point.at == "40")
    broken = next(p for p in made.points("table1") if p.line == "vanilla" and p.seed == 1)
    result = result_of(broken, 0.5)
    del result["final"]
    made.results[broken.run.key] = {**result, "failed": "all gradients are NaN"}
    text = page(made.evidence(), "figures")
    told = section(text, "What is missing")
    assert re.search(r"^\| table2 \| Table II \| \d+ of \d+ \| EPSL \(6\) \|$", told, re.M)
    assert "all gradients are NaN" in told
    assert "| table3 " not in told
    assert re.search(r"accuracy-vs-devices\*\*.* Not there yet: .*EPSL \(40\)", text)


def test_a_place_whose_only_run_failed_says_failed() -> None:
    made = Made(REDUCED).fill(varied, "table1")
    for point in made.points("table1"):
        if point.line == "psl" and point.workload == "cifar100" and (point.final or not point.searching):
            result = result_of(point, 0.5)
            del result["final"]
            made.results[point.run.key] = {**result, "failed": "diverged"}
    rows = tables(section(page(made.evidence(), None), "Table I: accuracy and time"))
    assert rows["**CIFAR-100, ViT: accuracy**"]["PSL"][0] == "failed"


def test_who_is_kept_and_which_classes_are_starved(whole: Made, text: str) -> None:
    """Device i of 10 is kept in (i + 1) / 10 of the rounds, and has classes i and i + 1 in equal parts."""
    result = whole.evidence().runs(Place("gapsl"))[0]
    assert reached(result)[3] == pytest.approx((0.3 + 0.4) / 2)
    assert starved(result) == [1, 2], "below half of the mean, 0.55"
    rows = tables(section(text, "Who is kept, and which classes are starved"))
    assert rows[""]["GAPSL"][:3] == ["5.5 of 10", "10 % to 100 %", "15 % to 95 %"]
    seeds = rows["**GAPSL, seed by seed**"]
    assert seeds["0"][1] == "device 0, 10 %"
    assert "automobile (reached 15 %" in seeds["0"][2] and "bird (reached 25 %" in seeds["0"][2]


def tracked(folder: str) -> bool:
    """Say whether anything in a folder is under version control."""
    try:
        found = subprocess.run(
            ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no checkout")
    return bool(found.stdout.strip())


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    stored = ROOT / "results" / "reduced"
    if (stored / ".lock").exists():
        pytest.skip("results are being computed")
    if not tracked("results/reduced/runs"):
        pytest.skip("no results are committed")
    written = ROOT / "docs" / "results.md"
    assert written.is_file(), "results without their page; run: gapsl reproduce --report-only --scale reduced"
    text = page(Evidence(REDUCED, Store(stored).get), "../results/reduced/figures")
    assert written.read_text("utf-8") == text, "run: gapsl reproduce --report-only --scale reduced"
