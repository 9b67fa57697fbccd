"""The page, its appendix and figures: equal to the results, the scale everywhere, nothing empty."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from gapsl_reproduction.catalogue import EXPERIMENTS
from gapsl_reproduction.plan import Cell, wanted
from gapsl_reproduction.report.appendix import appendix
from gapsl_reproduction.report.figures import FIGURES, draw_all
from gapsl_reproduction.report.findings import accuracies
from gapsl_reproduction.report.frame import EXCLUDING, IID, PAPER_RATES, SKEWED, Evidence
from gapsl_reproduction.report.numbers import listed
from gapsl_reproduction.report.page import TESTS, page, write_report
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.scales import SCALES, SMOKE, STANDARD
from gapsl_reproduction.store import Store
from made_up import Made

ROOT = Path(__file__).parents[2]
LEVEL = {"central": 80.0, "papsl": 70.0, "frozen": 60.0, "sfl": 65.0, "gapsl": 40.0, "psl": 45.0}
LEVEL["gapsl with eta 0.5"] = LEVEL["gapsl"]  # the same runs, where trials choose the first
PICTURES = {name: f"{name}.png" for name in FIGURES}


def level(cell: Cell) -> float | None:
    if cell.line == "epsl":
        return None
    other = {"twice as long": 3.3, "in large steps": -7.5}.get(cell.condition, 0.0)
    return LEVEL.get(cell.line, 30.0) + other + cell.seed


@cache
def core() -> Evidence:
    return Made(STANDARD).fill(level, "core").evidence()


@cache
def text() -> str:
    return page(core(), PICTURES, "appendix.md", "`tests`")


def test_the_scale_is_in_the_first_lines_in_every_table_and_in_the_first_finding() -> None:
    lines = text().splitlines()
    assert lines[2].startswith(
        "**CIFAR-10, VGG-16 at 1/4 width**: all training images, 10 % of them held out"
    )
    heads = [line for line, below in pairwise(lines) if below.startswith("| ---")]
    assert len(heads) == 4 and all("VGG-16 at 1/4 width" in head for head in heads)
    assert "(alpha 0.1, VGG-16 at 1/4 width)" in text()


def test_numbers_are_those_of_the_results() -> None:
    assert "| PAPSL | **71.0 ± 1.0 (3)** [79.0] |" in text()
    assert "| SFL | 66.0 ± 1.0 (3) |" in text() and "| 60.7 | 86.2 |" in text()
    assert "| central | 81.0 ± 1.0 (3) | 81.0 ± 1.0 (3) |" in text(), "all data in one place, IID or not"
    assert "1 failed" in text()
    assert (
        "in points, over the seeds that both have: SFL +5.0 (+5.0 to +5.0; 3 seeds), frozen +10.0" in text()
    )
    assert "GAPSL minus PSL is −5.0 (−5.0 to −5.0; 3 seeds) with rates of its own and" in text()
    assert "PAPSL minus frozen is +6.7 (1 seed)" in text()
    assert "keeps 5.5 of 10 devices" in text()


def test_where_trials_choose_another_eta_the_one_that_leaves_most_out_stays_a_line() -> None:
    made = Made(STANDARD).fill(
        lambda cell: 18.0 if cell.line == EXCLUDING else level(cell),
        "core",
        "exclusion",
        best=lambda run: run.settings.get("gapsl", {}).get("eta") == -1.0,
    )
    found = made.evidence()
    for condition in (SKEWED, IID, PAPER_RATES):
        keys = [found.frame.loc[(line, condition, 0)]["key"] for line in ("gapsl", EXCLUDING)]
        etas = [made.results[key]["config"]["gapsl"].get("eta") for key in keys]
        assert etas == [-1.0, None], "0.5 is as it is"
    told = page(found, PICTURES, "a.md", "`tests`")
    assert "| GAPSL | 41.0 ± 1.0 (3) [49.0] |" in told and "| GAPSL with eta 0.5 | 18.0 (1) [26.0] |" in told
    assert re.search(
        r"of GAPSL reach \d+\.\d with eta 0.5, \d+\.\d with eta 0 and \d+\.\d with eta −1 \(", told
    )
    # A made-up device is a hundredth better than the one before, and kept more often.
    assert "the other half end at 20.5 and 15.5 %; in PSL the same two halves end at" in told
    assert "GAPSL with eta 0.5 minus PSL for three tenths of the rounds is −27.0 (1 seed)." in told


def test_the_entry_condition_is_printed_with_the_shortfall() -> None:
    assert "is **not met**" in text()
    assert "| central | at least 85 | 81.0 | 4.0 |" in text()
    assert "| the better of PSL and SFL on IID data (SFL) | at least 80 | 65.0 | 15.0 |" in text()
    assert "| gain of frozen from twice the length | at most 2 | +3.3 | 1.3 |" in text()
    assert "take one per mini-batch (28,200)" in text(), "and the others one per round"
    assert "`central` itself reaches 72.5, −7.5 (1 seed) against small ones." in text()
    good = Made(STANDARD).fill(lambda cell: 90.0, "core").evidence()
    assert "gains at most 2) is met.\n" in page(good, {}, "", "")


def test_verdicts_are_the_decided_ones_and_the_rest_is_counted() -> None:
    assert "| PAPSL above SFL | ours | holds | PAPSL above SFL: +5.0 (" in text()
    assert "| GAPSL has the highest accuracy on skewed labels | Table I, Fig. 15 | does not hold |" in text()
    verdicts = text().partition("## Verdicts")[2].partition("## Costs")[0]
    assert "undecided |" not in verdicts and "not measured |" not in verdicts
    assert re.search(r"Undecided of \d+ claims: \d+; not measured: \d+\. .* \[One by one\]", verdicts)
    assert "PAPSL and PSL (iid)" in verdicts, "what has seeds enough for a verdict"


def test_bold_is_who_is_above_every_other_by_the_rule() -> None:
    def with_sfl(*values: float) -> str:
        levels = {"papsl": (70.0, 70.0, 70.0), "sfl": values}
        made = Made(STANDARD).fill(
            lambda cell: levels.get(cell.line, values)[cell.seed],
            "table1",
            unless=lambda cell: cell.line not in levels or cell.condition != SKEWED,
        )
        return page(made.evidence(), {}, "", "")

    assert "| SFL | **77.0 ± 1.0 (3)** |" in with_sfl(76.0, 77.0, 78.0)
    assert "**" not in with_sfl(80.0, 71.0, 71.0).partition("| SFL |")[2], "an interval that reaches across"


def test_who_guesses_in_the_end_had_come_so_far() -> None:
    made = Made(STANDARD).fill(lambda cell: 10.0, "table1")
    key = made.evidence().frame.loc[("vanilla", SKEWED, 0)]["key"]
    made.results[key]["history"][2]["device_mean"] = 0.179
    told = page(made.evidence(), {}, "", "")
    assert "| vanilla SL | 10.0 (1), guesses after 17.9 in round 846 |" in told
    assert "| frozen | 10.0 ± 0.0 (3), guesses |" in told


def test_runs_that_failed_are_told_with_the_accuracies() -> None:
    made = Made(STANDARD).fill(lambda cell: None if cell.seed else 30.0, "table1")
    assert "PSL 30.0 (1, 2 failed)" in accuracies(made.evidence())


def test_a_page_can_be_written_where_all_runs_failed() -> None:
    told = page(Made(STANDARD).fill(lambda cell: None, "table1").evidence(), {}, "", "")
    assert "| PSL | 3 failed |" in told and "## Findings" not in told


def test_costs_are_counted_and_measured() -> None:
    assert "| PAPSL | 28.20 | 28.20 | 1.81 | 2.44 |" in text()
    assert "| PSL | 28.20 | 28.20 | 1.19 | 2.60 |" in text()
    assert "| frozen | 28.20 | 0.00 | 0.41 | 2.60 |" in text(), "frozen models need no backward pass"
    assert "| GAPSL | 28.20 | 28.20 | 1.19 | 4.04 |" in text(), "a second pass over 5.5 of 10 devices"
    assert "| central | – | – |" in text()
    assert "Such a run took 24 to 24 minutes of a core" in text()


def test_what_was_not_run_is_one_list_at_the_end_and_nothing_empty_is_shown() -> None:
    before, _, rest = text().partition("## Not run\n\n")
    assert all(line.startswith("- `") for line in rest.strip().splitlines())
    assert "- `table2`, accuracy by number of devices, IID and not: 20 runs (" in rest
    assert "not at this scale: CIFAR-100" in rest and "`protocol`" not in rest
    assert "- `threshold`, a fixed angle decides who is kept, against the adaptive one: 6 runs (" in rest
    assert "not measured yet" not in before and "| – | – | – |" not in before
    everything = Made(SMOKE).fill(lambda cell: 50.0).evidence()
    assert "## Not run" not in page(everything, PICTURES, "", "")


def test_with_nothing_the_page_says_so_in_a_line() -> None:
    empty = page(Evidence(STANDARD, lambda key: None), {}, "a.md", "")
    assert "No run is there yet." in empty and empty.count("## ") == 1 and "## Not run" in empty
    few = page(Made(STANDARD).fill(level, "protocol").evidence(), {}, "a.md", "")
    assert "4 of 141 runs are there." in few
    assert "## Trained enough?" not in few and "| alpha 0.1, the paper's rates |" in few


def test_the_appendix_has_claims_cells_rates_failures_and_what_made_them() -> None:
    found = appendix(core(), "results.md")
    assert "**PAPSL above SFL**: *holds*." in found and "- yes: PAPSL above SFL: +5.0" in found
    assert "Not measured: " in found and "; GAPSL has the highest accuracy on CIFAR-100 (Table I)" in found
    assert "| PAPSL | alpha 0.1 | 71.0 ± 1.0 (3) |" in found
    assert re.search(r"\| SFL \| 0.01 / 0.01 \| `sfl.interval=1` \| \*\*\d+\.\d\*\* \|", found)
    assert "EPSL, alpha 0.1, seed 0, round 7: no device has a finite loss" in found
    assert "- commit: `0000000000`" in found and "- processor: a processor" in found
    assert "| `batch_size` | `32` |" in found


def test_the_appendix_compares_papsl_with_sfl_at_the_same_rates() -> None:
    def best(run: RunSpec) -> bool:
        return "probes" in run.settings and run.config.device_optimizer.lr == 0.03

    told = appendix(Made(STANDARD).fill(level, "core", best=best).evidence(), "results.md")
    found = re.search(r"At the same rates PAPSL minus SFL at its best interval is (.*)\.", told)
    assert found is not None
    leads = {
        rates: float(lead.replace("−", "-"))
        for lead, rates in re.findall(r"(\S+) at (\S+ / \S+)\b", found[1])
    }
    assert list(leads) == ["0.01 / 0.01", "0.03 / 0.03", "0.003 / 0.05", "0.01 / 0.1"]
    assert leads.pop("0.03 / 0.03") > 9 and all(abs(lead) < 1 for lead in leads.values())


def test_every_figure_is_drawn_and_none_without_results(tmp_path: Path) -> None:
    assert draw_all(core(), tmp_path) == list(FIGURES)
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in FIGURES)
    assert draw_all(Evidence(STANDARD, lambda key: None), tmp_path) == []
    assert list(tmp_path.iterdir()) == [], "what has nothing to show any more is removed"


@pytest.mark.parametrize("name", SCALES)
def test_a_page_of_every_scale_can_be_written(tmp_path: Path, name: str) -> None:
    made = Made(SCALES[name]).fill(level, "protocol", "length" if name == "full" else "core")
    write_report(made.evidence(), tmp_path / "figures", tmp_path / "results.md", pytest.fail)
    for found in ("results.md", "results-appendix.md"):
        assert SCALES[name].model in (tmp_path / found).read_text("utf-8")
    chosen = "chosen on the images held out" in (tmp_path / "results.md").read_text("utf-8")
    assert chosen == bool(SCALES[name].workloads["cifar10"].rates), "no rates, nothing to choose"


def test_the_committed_page_is_that_of_the_committed_results(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    stored = Store(ROOT / "results" / "standard", warn=pytest.fail)
    docs = ROOT / "docs"
    evidence = Evidence(STANDARD, stored.get)
    drawn = [name for name in FIGURES if (stored.folder / "figures" / f"{name}.png").is_file()]
    pictures = {name: f"../results/standard/figures/{name}.png" for name in drawn}
    tests = listed([f"[{name}](../tests/unit/{name})" for name in TESTS])
    written = (docs / "results.md").read_text("utf-8")
    assert written == page(evidence, pictures, "results-appendix.md", tests), (
        "write it with: gapsl reproduce --report-only"
    )
    assert (docs / "results-appendix.md").read_text("utf-8") == appendix(evidence, "results.md")
    assert set(drawn) == set(draw_all(evidence, tmp_path)), "the figures are those of the results, too"
    assert not stored.others({each.run.key for each in evidence.plan} | _trials(evidence))


def test_the_readme_has_the_numbers_of_the_committed_results() -> None:
    stored = Store(ROOT / "results" / "standard", warn=pytest.fail)
    told = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert accuracies(Evidence(STANDARD, stored.get)) in told


def _trials(evidence: Evidence) -> set[str]:
    found = wanted(EXPERIMENTS.values(), evidence.scale, evidence.results)
    return {run.key for run in found.runs}


def test_a_frame_has_a_row_a_cell() -> None:
    frame = core().frame
    assert len(frame) == 145 and frame["state"].value_counts().to_dict() == {
        "missing": 93,
        "done": 49,
        "failed": 3,
    }
    row = frame.loc[("papsl", SKEWED, 1)]
    assert (row["accuracy"], row["sent"], row["received"]) == (71.0, 28_200.0, 28_200.0)
