"""Figures: what they show is what is stored, seeds are told, and nothing that is missing breaks them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest
from gapsl_reproduction.catalogue import EXPERIMENTS, SCALES, Point
from gapsl_reproduction.report.draw import draw, in_rows, legend_columns
from gapsl_reproduction.report.evidence import Place
from gapsl_reproduction.report.figures import FIGURES, pictures
from gapsl_reproduction.report.looks import look_of
from gapsl_reproduction.report.measures import accuracy_without, faulty_devices, told_apart
from gapsl_reproduction.report.panels import Bars, Dots, Lines, Picture, Rows, Series
from gapsl_reproduction.report.spread import Estimate
from gapsl_reproduction.report.write import draw_figures
from made_up import Made

from gapsl.analysis.plots import save

REDUCED, SMOKE = SCALES["reduced"], SCALES["smoke"]


def varied(point: Point) -> float:
    return 0.3 + 0.01 * point.seed + 0.001 * len(point.line) + 0.002 * len(point.at or "")


@pytest.fixture(scope="module")
def whole() -> Made:
    return Made(REDUCED).fill(varied)


@pytest.fixture(scope="module")
def shown(whole: Made) -> dict[str, Picture]:
    return pictures(whole.evidence())


def test_every_experiment_that_is_no_table_is_a_figure() -> None:
    assert set(FIGURES) == {name for name in EXPERIMENTS if not name.startswith("table")}


def test_figures_have_the_papers_panels(shown: dict[str, Picture]) -> None:
    counts = {name: len(picture.panels) for name, picture in shown.items()}
    four, three, one = (
        ("curves", "cost"),
        ("robustness",),
        ("feature-shift", "readings", "ablation-recommended", "separation", "length", "fleet"),
    )
    for name, count in counts.items():
        assert count == (4 if name in four else 3 if name in three else 1 if name in one else 2), name
    assert not any(picture.empty or picture.missing for picture in shown.values())


def test_curves_are_means_over_seeds_with_their_spread(whole: Made, shown: dict[str, Picture]) -> None:
    panel = shown["curves"].panels[1]
    assert isinstance(panel, Lines) and panel.title == "CIFAR-10, VGG-16, non-IID"
    assert panel.y_label == "validation accuracy (%)"
    curve = next(curve for curve in panel.curves if curve.label == "PSL")
    runs = whole.evidence().runs(Place("psl")).values()
    for index, found in enumerate(curve.y):
        each = [100 * run["history"][index]["device_mean"] for run in runs]
        assert found.seeds == 3
        assert found.mean == pytest.approx(mean(each))
        assert found.std == pytest.approx(stdev(each))


def test_a_line_looks_the_same_everywhere(shown: dict[str, Picture]) -> None:
    for picture in shown.values():
        for panel in picture.panels:
            if isinstance(panel, Lines):
                looks = {curve.label: curve.look for curve in panel.curves}
                assert looks.get("PSL", look_of("psl")) == look_of("psl")
                assert looks.get("GAPSL", look_of("gapsl")) == look_of("gapsl")


def test_points_of_a_sweep_are_of_the_same_seeds(shown: dict[str, Picture]) -> None:
    """GAPSL has three seeds and more, a fixed ratio one: they are compared with one."""
    panel = shown["selection-ratio"].panels[0]
    assert isinstance(panel, Lines) and panel.level is not None
    assert {each.seeds for each in panel.estimates} == {1}


def test_only_honest_devices_count_among_faulty_ones(whole: Made, shown: dict[str, Picture]) -> None:
    run = whole.evidence().runs(Place("psl", sweep="faults", at="flip:3"))[0]
    faulty = faulty_devices(run)
    assert len(faulty) == 3
    honest = [own for device, own in enumerate(run["final"]["device_accuracy"]) if device not in faulty]
    panel = shown["robustness"].panels[0]
    assert isinstance(panel, Lines)
    curve = next(curve for curve in panel.curves if curve.label == "PSL")
    assert list(curve.x) == [0, 1, 2, 3]
    assert curve.y[3].mean == pytest.approx(100 * mean(honest))


def test_faulty_devices_are_told_apart_by_their_place_among_the_honest(whole: Made) -> None:
    (run,) = whole.evidence().runs(Place("psl", sweep="faults", at="noise:1")).values()
    (faulty,) = faulty_devices(run)
    # Made up: a device's scores fall with its number, on gradients and on probes.
    assert told_apart(run, "scores") == pytest.approx(100 * (9 - faulty) / 9)
    (ours,) = whole.evidence().runs(Place("recommended", sweep="faults", at="noise:1")).values()
    assert told_apart(ours, "probe_scores") == pytest.approx(100 * (9 - faulty) / 9)
    (clean, *_) = whole.evidence().runs(Place("psl")).values()
    assert told_apart(clean, "scores") is None


def test_devices_are_shown_by_score_with_one_seed(shown: dict[str, Picture]) -> None:
    scores, accuracies = shown["score-vs-accuracy"].panels
    assert isinstance(scores, Bars) and isinstance(accuracies, Bars)
    assert scores.groups == [str(device) for device in reversed(range(10))], "later devices agree more"
    values = [each.mean for each in scores.estimates]
    assert (values[0], values[-1]) == (0, 1)
    assert values == sorted(values)
    assert {each.seeds for each in accuracies.estimates} == {1}


def test_every_bar_of_separation_is_of_angles_to_the_others(whole: Made, shown: dict[str, Picture]) -> None:
    """A faulty device with larger angles on the probes alone raises the bar of the probes alone."""
    made = Made(REDUCED)
    made.results = deepcopy(whole.results)
    for point in made.points("robustness"):  # which has more seeds of some of them
        if point.line == "recommended" and point.sweep == "faults":
            for window in made.results[point.run.key]["windows"]:
                for device in faulty_devices(made.results[point.run.key]):
                    window["probe_scores"][device] = 3.0
    (panel,), (before,) = FIGURES["separation"](made.evidence()).panels, shown["separation"].panels
    assert isinstance(panel, Bars) and isinstance(before, Bars)
    for now, then in zip(panel.series, before.series, strict=True):
        if now.label.startswith("probes"):
            assert [each.mean for each in now.values if each is not None] == [100] * 3
        else:
            assert now == then


def test_separation_counts_runs_that_fail_as_far_as_they_go_and_says_so(whole: Made) -> None:
    made = Made(REDUCED)
    made.results = deepcopy(whole.results)
    for point in made.points("separation"):
        if point.line == "psl" and point.at == "flip:3":
            result = dict(made.results[point.run.key])
            del result["final"]
            made.results[point.run.key] = {**result, "failed": "no finite loss", "rounds": 300 + point.seed}
    made.drop(lambda point: point.line == "gapsl" and point.at == "noise:3")
    picture = FIGURES["separation"](made.evidence())
    (panel,) = picture.panels
    assert isinstance(panel, Bars)
    by_label = {series.label: series.values for series in panel.series}
    failed = by_label["gradients, PSL"][0]
    assert failed is not None and failed.seeds == 3
    assert "with flipped gradients PSL fails in rounds 300, 301 and 302" in picture.says
    assert by_label["gradients, GAPSL"][2] is None
    assert picture.missing == ["gradients, GAPSL (noise for activations)"]


def test_a_point_whose_runs_fail_is_said_to_have_failed(whole: Made) -> None:
    made = Made(REDUCED)
    made.results = deepcopy(whole.results)
    for point in made.points("robustness", "separation"):
        if point.line == "psl" and point.at == "flip:3":
            made.results[point.run.key] = {**made.results[point.run.key], "failed": "no finite loss"}
    assert FIGURES["robustness"](made.evidence()).missing == ["flipped gradients: PSL (3: failed)"]
    for point in made.points("robustness", "separation"):
        if point.line == "psl" and point.at == "flip:3" and point.seed != 1:
            made.results[point.run.key] = whole.results[point.run.key]
    assert FIGURES["robustness"](made.evidence()).missing == ["flipped gradients: PSL (3: 1 of 3 failed)"]


def test_robustness_compares_the_same_devices_with_faults_and_without(whole: Made) -> None:
    evidence = whole.evidence().restricted([0])
    (panel, *_) = FIGURES["robustness"](evidence).panels
    assert isinstance(panel, Lines)
    (curve,) = [curve for curve in panel.curves if curve.label == "PSL"]
    faulty = faulty_devices(evidence.runs(Place("psl", sweep="faults", at="flip:3"))[0])
    assert len(faulty) == 3
    assert curve.y[0].mean == pytest.approx(accuracy_without(evidence.runs(Place("psl"))[0], faulty))


def test_a_bar_of_nothing_is_told_from_one_that_is_missing() -> None:
    nothing, something = Estimate(0.0, None, 1), Estimate(50.0, None, 1)
    series = [Series("a", look_of("psl"), [nothing, something, None])]
    (axes,) = draw(Picture([Bars("bars", "percent", ["x", "y", "z"], series)])).axes
    assert [(text.get_text(), text.get_position()[0]) for text in axes.texts] == [("0", 0.0)]
    low, high = axes.get_xlim()
    assert low < 0 and high > 2, "there is room for a group without bars"


def test_readings_are_shown_against_ours(shown: dict[str, Picture]) -> None:
    (panel,) = shown["readings"].panels
    assert isinstance(panel, Rows)
    assert len(panel.rows) <= len(REDUCED.sweeps["readings"])
    first = next(iter(panel.rows))
    assert first.startswith("our reading")
    assert panel.reference == panel.rows[first]


def test_readings_that_are_the_same_run_are_shown_once() -> None:
    penalty = REDUCED.workloads["cifar10"].settings["gapsl"]
    sweep = {"our reading": {}, "eta 1": {"gapsl": {"eta": 1.0}}, "as it is": {"gapsl": penalty}}
    made = Made(replace(REDUCED, sweeps={**REDUCED.sweeps, "readings": sweep})).fill(varied, "readings")
    (panel,) = FIGURES["readings"](made.evidence()).panels
    assert isinstance(panel, Rows)
    assert list(panel.rows) == ["our reading = as it is", "eta 1"]
    made.drop(lambda point: point.at == "eta 1")
    (panel,) = FIGURES["readings"](made.evidence()).panels
    assert panel.missing == ["eta 1"]


def test_time_is_counted_in_rounds_where_a_schedule_goes_by_them(shown: dict[str, Picture]) -> None:
    """Made up: three epochs of ten rounds each."""
    scheduled, constant = shown["converged-time"].panels
    assert isinstance(scheduled, Bars) and isinstance(constant, Bars)
    assert (scheduled.y_label, constant.y_label) == ("rounds to converge", "epochs to converge")
    assert {each.mean for each in scheduled.estimates} == {30}
    assert {each.mean for each in constant.estimates} == {3}
    leader = shown["leader-vs-single"].panels[1]
    assert isinstance(leader, Bars) and leader.y_label == "rounds to converge"


def test_dispersion_has_a_dot_a_run(whole: Made, shown: dict[str, Picture]) -> None:
    dots, best = shown["dispersion"].panels
    assert isinstance(dots, Dots) and isinstance(best, Lines)
    evidence = whole.evidence()
    runs = sum(
        len(evidence.runs(place)) for line in ("psl", "gapsl") for place in evidence.over_alpha(line).values()
    )
    assert sum(map(len, dots.dots.values())) == runs


@pytest.mark.parametrize("gone", EXPERIMENTS)
def test_what_is_missing_is_told_and_breaks_nothing(whole: Made, gone: str) -> None:
    made = Made(REDUCED)
    made.results = dict(whole.results)
    for point in made.points(gone):
        made.results.pop(point.run.key, None)
    for name, picture in pictures(made.evidence()).items():
        if name == gone:
            assert picture.empty or picture.missing


def test_with_half_of_the_runs_every_figure_is_still_made(whole: Made) -> None:
    made = Made(REDUCED)
    keys = sorted(whole.results)
    made.results = {key: whole.results[key] for key in keys[::2]}
    assert len(pictures(made.evidence())) == len(FIGURES)


def test_figures_are_drawn_as_png_and_svg_and_taken_away_when_empty(tmp_path: Path) -> None:
    made = Made(SMOKE).fill(varied)
    assert draw_figures(made.evidence(), tmp_path) == len(FIGURES)
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.{s}" for n in FIGURES for s in ("png", "svg")}
    for path in tmp_path.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    made.drop(lambda point: True)
    assert draw_figures(made.evidence(), tmp_path) == 0
    assert not list(tmp_path.iterdir())


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    picture = pictures(Made(SMOKE).fill(varied, "psl-vs-sfl").evidence())["psl-vs-sfl"]
    for suffix in ("png", "svg"):
        one, two = tmp_path / f"one.{suffix}", tmp_path / f"two.{suffix}"
        for path in (one, two):
            save(draw(picture), path)
        assert one.read_bytes() == two.read_bytes()


def test_a_drawing_says_how_many_seeds_and_what_is_missing(whole: Made) -> None:
    made = Made(REDUCED)
    made.results = dict(whole.results)
    made.drop(lambda point: point.line == "epsl" or (point.line == "psl" and point.seed > 0))
    drawn = draw(FIGURES["converged-accuracy"](made.evidence()))
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == ["CIFAR-10, VGG-16 (1 to 5 seeds)", "CIFAR-100, ViT (1 seed)"]
    (legend,) = drawn.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert "hollow: 1 seed" in labels and "EPSL" not in labels
    assert drawn.get_supxlabel() == "not there yet: CIFAR-10, VGG-16: EPSL; CIFAR-100, ViT: EPSL"


def test_a_legend_reads_along_its_rows() -> None:
    labels = ["a", "b", "c", "d", "e"]
    assert in_rows(labels, 3) == ["a", "d", "b", "e", "c"], "columns a d, b e and c: rows a b c and d e"
    assert legend_columns(["x" * 40] * 6) == 2
    assert legend_columns(["x"] * 4) == 4
