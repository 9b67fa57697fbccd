"""The page: its numbers are the store's, it says what is missing, and the committed one is up to date."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from made_up import Made, result_of

from gapsl.experiments import paper
from gapsl.experiments.catalogue import EXPERIMENTS, SCALES, Point, Scale
from gapsl.experiments.catalogue.lines import TABLE
from gapsl.experiments.report.claims import CLAIMS
from gapsl.experiments.report.contradictions import CONTRADICTIONS
from gapsl.experiments.report.evidence import Evidence, Place
from gapsl.experiments.report.figures import FIGURES
from gapsl.experiments.report.naming import line_name
from gapsl.experiments.report.page.exclusion import reached, starved
from gapsl.experiments.report.page.whole import page
from gapsl.experiments.store import Store

ROOT = Path(__file__).parents[3]
REDUCED = SCALES["reduced"]

Rows = dict[str, list[str]]


def varied(point: Point) -> float:
    """Give every run an accuracy of its own, more of it to later lines."""
    rank = TABLE.index(point.line) if point.line in TABLE else 3
    tried = 0.01 * point.rates.device if point.searching and point.rates is not None else 0.0
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
    epochs = tables(section(text, "Table I: accuracy and time"))["**CIFAR-10, VGG-16: epochs to converge**"]
    assert epochs["SFL"] == ["3.0 ± 0.0 (5)", "42", "3.0 ± 0.0 (5)", "27"]
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


def test_the_search_shows_every_trial_and_what_was_chosen(whole: Made, text: str) -> None:
    found = tables(section(text, "Learning rates"))
    (skewed,) = (rows for title, rows in found.items() if "CIFAR-10," in title and "dirichlet" in title)
    assert len(skewed[""]) == 6
    assert [cell.startswith("**") for cell in skewed["PSL"]] == [True] + [False] * 5, (
        "the highest rate is best"
    )
    assert skewed["frozen"][2:] == [""] * 4, "only the server's rate is searched"
    searching = [p for p in whole.points("psl-vs-sfl") if p.searching and p.line == "psl"]
    for point, cell in zip(searching, skewed["PSL"], strict=True):
        reached_ = whole.results[point.run.key]["final"]["validation"]["device_mean"]
        assert cell.strip("*") == f"{100 * reached_:.1f}"


def test_a_search_that_decides_nothing_is_told() -> None:
    text = page(Made(REDUCED).fill(lambda point: 0.1, "psl-vs-sfl").evidence(), None)
    assert "All pairs did the same for SFL and PSL: the first is used." in text.replace(
        "PSL and SFL", "SFL and PSL"
    )


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


def test_without_figures_nothing_is_linked(whole: Made) -> None:
    assert "![" not in page(whole.evidence(), None)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_an_empty_store_makes_a_page_that_says_so(scale: Scale) -> None:
    text = page(Made(scale).evidence(), "figures")
    assert f"{len(CLAIMS)} not measured yet." in text
    assert "![" not in text
    for name in EXPERIMENTS:
        assert re.search(rf"^\| {name} \| .* \| 0 of \d+ \| ", section(text, "What is missing"), re.M)


def test_missing_and_failed_runs_are_named(whole: Made) -> None:
    made = Made(REDUCED)
    made.results = dict(whole.results)
    made.drop(lambda point: point.line == "epsl" and point.sweep == "devices" and point.at == "40")
    broken = next(p for p in made.points("table1") if p.line == "vanilla" and not p.searching)
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
        if point.line == "psl" and point.workload == "cifar100" and not point.searching:
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


@pytest.mark.skipif(
    not (ROOT / "docs" / "results.md").is_file() or not (ROOT / "results" / "reduced" / "runs").is_dir(),
    reason="no results are committed",
)
def test_the_committed_page_is_that_of_the_committed_results() -> None:
    stored = ROOT / "results" / "reduced"
    if (stored / ".lock").exists():
        pytest.skip("results are being computed")
    text = page(Evidence(REDUCED, Store(stored).get), "../results/reduced/figures")
    assert (ROOT / "docs" / "results.md").read_text("utf-8") == text, (
        "run: gapsl reproduce --report-only --scale reduced"
    )
