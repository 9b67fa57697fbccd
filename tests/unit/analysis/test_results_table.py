"""Tables of results: what is averaged, what becomes a column, and what is said of the rest."""

from __future__ import annotations

import csv
import io
import statistics
from pathlib import Path

import pytest
from made_results import result
from rich.cells import cell_len

import gapsl
from gapsl.analysis.classes import classes_table, confusion_tables
from gapsl.analysis.formats import Table, escaped
from gapsl.analysis.runs import RunSummary, grouped, varying
from gapsl.analysis.statistics import t_quantile
from gapsl.analysis.tables import as_json, results_table
from gapsl.run.config import make_config, preset
from gapsl.run.folder import RunFolder
from gapsl.run.records import Evaluation, RoundRecord

FIXTURES = Path(__file__).parents[2] / "fixtures"
METHODS = [
    result(name, seed, base + seed / 100) for name, base in (("psl", 0.2), ("sfl", 0.6)) for seed in range(3)
]


def cells(table: Table, heading: str) -> list[str]:
    """A column of a table."""
    (column,) = (column for column in table.columns if column.heading == heading)
    return list(column.cells)


def headings(table: Table) -> list[str]:
    return [column.heading for column in table.columns]


def numbers(table: Table, name: str) -> list[object]:
    return [row.get(name) for row in table.numbers]


# --- groups


def test_seeds_of_the_same_settings_are_one_row_and_the_spread_is_over_them() -> None:
    table = results_table(METHODS)
    assert cells(table, "method") == ["PSL", "SFL"]
    assert cells(table, "mean") == ["21.0±1.0", "61.0±1.0"]
    assert table.title == "digits, small, 2 devices, dirichlet:0.1, 40 rounds, seeds 0, 1, 2"
    assert any(note.startswith("±: sample standard deviation over the seeds") for note in table.notes)


def test_two_learning_rates_with_the_same_seed_are_two_rows_and_no_mean() -> None:
    runs = [
        result("psl", 0, 0.12, server_optimizer={"lr": 0.01}),
        result("psl", 0, 0.446, server_optimizer={"lr": 0.1}),
    ]
    table = results_table(runs)
    assert cells(table, "server lr") == ["0.01", "0.1"]
    assert cells(table, "mean") == ["12.0", "44.6"]
    assert not any("±" in cell for column in table.columns for cell in column.cells)


def test_what_differs_is_a_column_and_not_in_the_title() -> None:
    runs = [
        result("psl", 0, 0.3),
        result("psl", 0, 0.4, rounds=10, devices=3, partition="iid"),
        result("gapsl", 0, 0.5, dataset="cifar10"),
    ]
    table = results_table(runs)
    assert table.title == "small, seed 0"
    assert cells(table, "dataset") == ["digits", "digits", "cifar10"]
    assert cells(table, "devices") == ["2", "3", "2"]
    assert cells(table, "partition") == ["dirichlet:0.1", "iid", "dirichlet:0.1"]
    assert cells(table, "rounds") == ["40", "10", "40"]


def test_what_a_method_or_a_preset_brings_is_told_by_its_name() -> None:
    runs = [result("psl", 0, 0.3), result("papsl", 0, 0.4), result("gapsl", 0, 0.4, gapsl={"eta": 0.1})]
    runs.append(result(**{**preset("recommended"), "label": "recommended", "seed": 0, "accuracy": 0.5}))
    assert varying(grouped(map(RunSummary.of, runs))) == []
    assert headings(results_table(runs))[:2] == ["method", "mean"]
    twice = [*runs, result("gapsl", 0, 0.4, gapsl={"eta": 0.5})]
    assert varying(grouped(map(RunSummary.of, twice))) == ["gapsl.eta"]


def test_settings_of_other_methods_and_places_of_files_make_no_difference() -> None:
    runs = [
        result("psl", 0, 0.3),
        result("psl", 1, 0.4, gapsl={"eta": 0.1}, data_dir="/elsewhere", checkpoint_every=5),
    ]
    assert len(results_table(runs).numbers) == 1


def test_a_seed_that_is_there_twice_counts_once_and_is_named() -> None:
    table = results_table([*METHODS[:3], result("psl", 0, 0.9)])
    assert cells(table, "mean") == ["21.0±1.0"]
    assert table.notes[-1].endswith("are there already: psl with seed 0.")


def test_seeds_are_a_column_where_rows_have_different_ones() -> None:
    table = results_table([*METHODS[:3], METHODS[3]])
    assert cells(table, "seeds") == ["0-2", "0"]
    assert "seed" not in table.title


def test_runs_of_an_older_version_and_of_methods_that_are_not_known_here_are_shown(tmp_path: Path) -> None:
    old = RunSummary.read(RunFolder(FIXTURES / "finished"))
    mine = result("psl", 0, 0.5)
    unknown = RunSummary.of(
        gapsl.RunResult.from_dict(
            {**mine.to_dict(), "method": "mine", "config": {**mine.config, "method": "mine"}}
        )
    )
    assert cells(results_table([old, unknown]), "method") == ["GAPSL", "mine"]


# --- runs that are not finished


def test_an_unfinished_run_is_a_row_of_its_own_that_says_how_far_it_is() -> None:
    half = RunSummary.read(RunFolder(FIXTURES / "unfinished"))
    assert (half.final, half.done > 0, half.total > half.done) == (None, True, True)
    table = results_table([half, *METHODS[:1]])
    assert cells(table, "state") == [f"round {half.done} of {half.total}", "finished"]
    assert cells(table, "mean")[0] == f"{100 * half.history[-1].device_mean:.1f}"
    assert "Rows of runs that are not finished show their newest evaluation." in table.notes


def test_a_run_before_its_first_round_is_a_row_without_numbers(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", make_config({"rounds": 5}), {})
    table = results_table([RunSummary.read(folder)])
    assert cells(table, "state") == ["round 0 of 5"]
    assert set(cells(table, "mean") + cells(table, "s")) == {"-"}


# --- differences


def test_differences_are_paired_by_seed_with_a_student_interval() -> None:
    first = [result("psl", seed, value) for seed, value in ((0, 0.2), (1, 0.4), (2, 0.3), (7, 0.9))]
    second = [result("gapsl", seed, value) for seed, value in ((2, 0.33), (0, 0.25), (1, 0.41), (9, 0.1))]
    table = results_table([*first, *second])
    pairs = [0.05, 0.01, 0.03]
    half = 4.302653 * statistics.stdev(pairs) / 3**0.5
    (row,) = (row for row in table.numbers if row["method"] == "gapsl")
    assert row["pairs"] == 3
    assert row["difference"] == pytest.approx(0.03)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((0.03 - half, 0.03 + half))
    assert cells(table, "vs PSL") == ["-", f"+3.0 [{100 * (0.03 - half):+.1f}, {100 * (0.03 + half):+.1f}]"]


def test_quantiles_are_students() -> None:
    known = {
        1: 12.7062047,
        2: 4.3026527,
        3: 3.1824463,
        4: 2.7764451,
        9: 2.2621572,
        30: 2.0422725,
        100: 1.9839715,
    }
    assert {n: t_quantile(n) for n in known} == pytest.approx(known, rel=1e-7)


def test_a_baseline_is_named_and_one_pair_has_no_interval() -> None:
    table = results_table([METHODS[0], METHODS[3]])
    assert "vs PSL" not in headings(table), "there is no interval to give"
    assert cells(results_table([METHODS[0], METHODS[3]], "SFL"), "vs SFL") == ["-40.0", "-"]
    assert cells(results_table(METHODS, "sfl"), "vs SFL")[1] == "-"


def test_a_baseline_that_is_not_there_or_not_one_row_is_refused_with_a_way_out() -> None:
    runs = [result("psl", s, 0.1, server_optimizer={"lr": lr}) for lr in (0.01, 0.1) for s in (0, 1)]
    with pytest.raises(gapsl.InputError, match="the names in the table are: psl"):
        results_table(runs, "sfl")
    with pytest.raises(gapsl.InputError, match=r"names 2 rows .* --baseline 'psl,server_optimizer.lr=VALUE'"):
        results_table(runs, "psl")
    assert cells(results_table(runs, "psl,server_optimizer.lr=0.1"), "vs PSL")[1] == "-"


# --- formats


@pytest.mark.parametrize("width", [40, 60, 80])
def test_what_does_not_fit_goes_below_and_nothing_is_lost(width: int) -> None:
    table = results_table(METHODS)
    lines = table.text(width).splitlines()
    assert max(map(cell_len, lines)) <= width
    for column in table.columns:
        for cell in (column.heading, *column.cells):
            assert any(cell in line for line in lines), cell
    assert len(table.text().splitlines()[1].split()) == len(headings(table)) + 1, "vs PSL is two words"


def test_markdown_and_latex_have_every_cell() -> None:
    table = results_table([*METHODS, result("psl", 0, 0.4, label="50 % a_b|c")])
    marked = table.markdown().splitlines()
    assert marked[2].count("|") == len(table.columns) + 1
    assert "50 % a_b\\|c" in table.markdown()
    latex = table.latex()
    assert r"PSL & 0-2 & 21.0$\pm$1.0" in latex and r"50 \% a\_b|c" in latex
    assert latex.count(r"\\") == 4 and r"\toprule" in latex


def test_latex_has_minus_signs_before_numbers_alone() -> None:
    table = results_table([result("psl", s, 0.5) for s in (0, 1)] + [result("sfl", s, 0.4) for s in (0, 1)])
    assert "$-$10.0 [$-$10.0, $-$10.0]" in table.latex()
    assert escaped("vit-tiny 2026-11-18 -") == "vit-tiny 2026-11-18 -" and escaped("-") == "--"


def test_faults_and_robust_steps_are_in_the_title_and_one_device_is_one() -> None:
    shown = results_table([result("psl", 0, 0.5, rounds=1, faults="flip:1", robust="clip")]).title
    assert shown.endswith("2 devices, dirichlet:0.1, 1 round, faults flip:1, robust clip, seed 0")
    assert "faults" not in results_table([result("psl", 0, 0.5)]).title
    assert ", 1 device, " in results_table([result("psl", 0, 0.5, devices=1)]).title


def test_a_share_that_is_trimmed_is_a_column_where_something_is_trimmed() -> None:
    clipped = [result("psl", 0, 0.5, robust="clip", robust_trim=trim) for trim in (0.1, 0.2)]
    assert varying(grouped(map(RunSummary.of, clipped))) == []
    trimmed = [result("psl", 0, 0.5, robust="trimmed", robust_trim=trim) for trim in (0.1, 0.2)]
    assert varying(grouped(map(RunSummary.of, trimmed))) == ["robust_trim"]


def test_a_baseline_with_two_rows_is_told_apart_by_a_column_s_heading_too() -> None:
    runs = [result("psl", 0, value, server_optimizer={"lr": value}) for value in (0.1, 0.2)]
    with pytest.raises(gapsl.InputError, match=r"'psl,server_optimizer.lr=VALUE', where VALUE .*: 0.1, 0.2"):
        results_table(runs, "psl")
    for name in ("server lr", "server_optimizer.lr"):
        assert results_table(runs, f"psl,{name}=0.2").columns[-1].cells == ("-10.0", "-")


def test_notes_in_a_file_have_80_columns() -> None:
    lines = results_table([result("psl", 0, 0.5)]).text().splitlines()
    assert max(map(len, lines)) <= 80


def test_csv_has_all_digits_and_the_spread_beside_each_mean() -> None:
    (psl, sfl) = csv.DictReader(io.StringIO(results_table(METHODS).csv()))
    assert float(psl["device_mean"]) == pytest.approx(0.21, rel=1e-12)
    assert float(psl["device_mean_sd"]) == pytest.approx(0.01, rel=1e-9)
    assert (psl["seeds"], sfl["pairs"], psl["bytes_received"]) == ("0 1 2", "3", "3000000.0")


def test_json_has_groups_runs_classes_and_confusion() -> None:
    found = as_json(map(RunSummary.of, METHODS))
    assert [group["method"] for group in found["groups"]] == ["psl", "sfl"]
    first = found["groups"][0]
    assert [run["seed"] for run in first["runs"]] == [0, 1, 2]
    assert first["runs"][1]["device_mean"] == pytest.approx(0.21)
    assert first["classes"] == ["ant", "bee", "cat"]
    assert first["confusion"] == [[24, 6, 0], [3, 27, 0], [0, 0, 0]]


# --- classes


def test_accuracy_by_class_is_a_row_per_name() -> None:
    table = classes_table(map(RunSummary.of, METHODS))
    assert headings(table) == ["class", "PSL", "SFL"]
    assert cells(table, "class") == ["ant", "bee", "cat"]
    assert cells(table, "PSL") == ["21.0±1.0", "21.0±1.0", "-"]
    assert len(table.numbers) == 6


def test_confusion_is_in_percent_of_the_true_class_and_in_counts_for_programs() -> None:
    table, _ = confusion_tables(map(RunSummary.of, METHODS))
    assert headings(table) == ["true", "ant", "bee", "cat"]
    assert [cells(table, name) for name in ("ant", "bee", "cat")] == [
        ["80", "10", "0"],
        ["20", "90", "0"],
        ["0"] * 3,
    ]
    assert table.numbers[0] == {"method": "psl", "true": "ant", "ant": 24, "bee": 6, "cat": 0}


def test_runs_without_them_are_refused_with_the_reason() -> None:
    half = RunSummary.read(RunFolder(FIXTURES / "finished"))
    with pytest.raises(gapsl.InputError, match="no confusion matrix; runs of this version"):
        confusion_tables([half])
    assert cells(classes_table([half]), "class") == [str(i) for i in range(10)], "names were not stored"


def test_unfinished_runs_are_read_from_their_records(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", make_config({"epochs": 2, "method": "psl"}), {})
    done = {"loss": 1.0, "losses": {0: 1.0}, "bytes_sent": {0: 0}, "bytes_received": {0: 0}, "seconds": {}}
    entry = METHODS[0].history[0]
    assert isinstance(entry, Evaluation)
    folder.append(RoundRecord(round=1, epoch=0.1, evaluation=entry, **done))
    folder.append(RoundRecord(round=2, epoch=0.2, **done))
    run = RunSummary.read(folder)
    assert (run.state, run.newest, run.settings["epochs"]) == ("round 2 of 20", entry, 2)
