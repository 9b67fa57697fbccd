"""The catalogue: everything the paper shows is there, its runs are valid, shared and in a good order."""

from __future__ import annotations

import pytest
from gapsl_reproduction.catalogue import (
    EXPERIMENTS,
    SCALES,
    Experiment,
    Grid,
    Scale,
    find,
    find_scale,
    wanted,
)
from gapsl_reproduction.catalogue.grid import GOAL, SWEEPS
from gapsl_reproduction.catalogue.lines import TABLE
from gapsl_reproduction.planned import Planned
from gapsl_reproduction.store import Result

from gapsl.common.errors import InputError
from gapsl.run.api import compose
from gapsl.run.config import preset

NAMES = {
    "table1", "table2", "table3", "curves", "converged-accuracy", "converged-time", "accuracy-vs-devices",
    "accuracy-vs-alpha", "psl-vs-sfl", "angle-vs-alpha", "single-device", "score-vs-accuracy",
    "selection-ratio", "dispersion", "leader-vs-single", "threshold", "ablation-lgi", "ablation-gda",
    "ablation-recommended", "robustness", "separation", "feature-shift", "cost", "length", "fleet",
    "readings",
}  # fmt: skip


def nothing(key: str) -> None:
    return None


def anything(key: str) -> Result:
    """Every run has ended, each as well as the others: the first rate of a grid is chosen."""
    return {"final": {"validation": {"device_mean": 0.5}}}


def keys(runs: list[Planned]) -> set[str]:
    return {run.key for run in runs}


def test_every_table_and_figure_with_data_is_there() -> None:
    assert set(EXPERIMENTS) == NAMES
    shown = {experiment.shows for experiment in EXPERIMENTS.values()}
    figures = {2, 3, 5, 7, 8, 10, 11, 13, 15, 16, 17, 18, 19, 20, 21}
    assert shown == {"Table I", "Table II", "Table III", "ours"} | {f"Fig. {number}" for number in figures}


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_run_of_every_experiment_can_be_planned(scale: Scale) -> None:
    for experiment in EXPERIMENTS.values():
        assert experiment.points(scale, anything), experiment.name
    found = wanted(EXPERIMENTS.values(), scale, anything)
    assert len(keys(found.runs)) == len(found.runs)
    assert not found.open


def test_names_are_found_groups_taken_apart_and_the_nearest_told() -> None:
    assert [experiment.name for experiment in find(["ablations", "table1", "table1"])] == [
        "ablation-lgi",
        "ablation-gda",
        "ablation-recommended",
        "table1",
    ]
    assert len(find(["all"])) == len(EXPERIMENTS)
    with pytest.raises(InputError, match="did you mean 'threshold'"):
        find(["treshold"])
    with pytest.raises(InputError, match="did you mean 'reduced'"):
        find_scale("reduce")


def test_full_is_the_papers_setting_to_the_letter() -> None:
    full = SCALES["full"]
    for workload, name in (("cifar10", "paper-cifar10-vgg16"), ("cifar100", "paper-cifar100-vit")):
        paper = compose(preset_name=name)
        points = [p for p in EXPERIMENTS["table1"].points(full, nothing) if p.workload == workload]
        ours = [p for p in points if p.line == "gapsl" and p.partition == "non-iid"]
        assert [point.seed for point in ours] == [0, 1, 2]
        assert ours[0].run.config == paper
        assert not any(point.searching for point in points), "the paper's own learning rates"
    sizes = [p.run.config.devices for p in EXPERIMENTS["table2"].points(full, nothing) if p.line == "psl"]
    assert sorted(set(sizes)) == [10, 20, 30, 40]
    alphas = {p.at for p in EXPERIMENTS["table3"].points(full, nothing)}
    assert alphas == {"0.9", "0.7", "0.5", "0.3"}


def test_every_table_has_the_baselines_and_what_we_recommend() -> None:
    for name in ("table1", "table2", "table3"):
        points = EXPERIMENTS[name].points(SCALES["reduced"], anything)
        for workload in {point.workload for point in points}:
            assert {p.line for p in points if p.workload == workload} == set(TABLE)
    assert {"frozen", "central", "recommended"} < set(TABLE)


def test_the_recommended_settings_are_those_of_the_preset_but_for_the_rates_that_are_searched() -> None:
    points = EXPERIMENTS["table1"].points(SCALES["reduced"], anything)
    ours = [point for point in points if point.line == "recommended" and not point.searching]
    for name, value in preset("recommended").items():
        if not name.endswith("optimizer"):
            assert {getattr(point.run.config, name) for point in ours} == {value}


def test_at_full_scale_the_presets_rate_is_that_of_sgd_and_the_papers_that_of_adamw() -> None:
    points = [p for p in EXPERIMENTS["table1"].points(SCALES["full"], nothing) if p.line == "recommended"]
    found = {p.workload: p.run.config.device_optimizer for p in points}
    paper = compose(preset_name="paper-cifar100-vit").device_optimizer
    assert (paper.name, found["cifar100"]) == ("adamw", paper)
    rate = preset("recommended")["device_optimizer"]["lr"]
    assert (found["cifar10"].name, found["cifar10"].lr) == ("sgd", rate)


def test_seeds_are_as_many_as_the_claims_need() -> None:
    reduced = SCALES["reduced"]

    def seeds(name: str, line: str, workload: str = "cifar10") -> set[int]:
        return {
            point.seed
            for point in EXPERIMENTS[name].points(reduced, anything)
            if point.line == line and point.workload == workload and not point.searching
        }

    assert seeds("table1", "psl") == seeds("ablation-lgi", "rand-lgi") == {0, 1, 2}
    assert seeds("table1", "recommended") == seeds("table1", "sfl") == {0, 1, 2, 3, 4}
    assert seeds("table2", "psl") == seeds("table3", "psl") == {0, 1, 2}
    assert seeds("table1", "sfl", "cifar100") == seeds("threshold", "gapsl") == {0}
    two = EXPERIMENTS["table1"].points(reduced.with_seeds(2), anything)
    assert {point.seed for point in two if point.workload == "cifar100"} == {0, 1}


def test_a_place_is_listed_once_however_many_grids_have_it() -> None:
    points = EXPERIMENTS["table1"].points(SCALES["reduced"], anything)
    assert len({point.place for point in points}) == len(points)


def test_a_run_has_the_best_of_its_priorities_whatever_the_order_of_the_grids() -> None:
    first, later = Grid(("psl",), priority=GOAL), Grid(("psl", "sfl"), priority=SWEEPS)
    for grids in ((first, later), (later, first)):
        points = Experiment("both", "ours", "", grids).points(SCALES["smoke"], anything)
        found = {point.line: point.priority for point in points if not point.searching}
        assert found == {"psl": GOAL, "sfl": SWEEPS}


def test_figures_share_the_runs_of_their_tables() -> None:
    reduced = SCALES["reduced"]
    for figure, table in (
        ("curves", "table1"),
        ("converged-time", "table1"),
        ("accuracy-vs-devices", "table2"),
        ("accuracy-vs-alpha", "table3"),
    ):
        ours, theirs = (wanted(find([name]), reduced, anything).runs for name in (figure, table))
        assert keys(ours) == keys(theirs)
    one = wanted(find(["psl-vs-sfl"]), reduced, anything).runs
    assert keys(one) < keys(wanted(find(["table1"]), reduced, anything).runs)


def test_what_matters_comes_first_and_seeds_take_turns() -> None:
    found = wanted(find(["all"]), SCALES["reduced"], anything).runs
    core = keys(wanted(find(["table1", "ablations"]), SCALES["reduced"], anything).runs)
    core = {run.key for run in found if run.key in core and run.config.dataset == "cifar10"}
    assert keys(found[: len(core)]) == core
    seeds = [run.config.seed for run in found[: len(core)]]
    assert seeds == sorted(seeds)
    first = [run.config.method for run in found if run.config.seed == 0][:3]
    assert first == ["gapsl"] * 3, "the search of the first line"
    datasets = [run.config.dataset for run in found]
    assert "cifar100" not in datasets[: datasets.index("cifar100")] and datasets.index("cifar100") > len(core)


def test_a_place_to_compute_is_not_another_run() -> None:
    smoke = SCALES["smoke"]
    ours = wanted(find(["table1"]), smoke.with_settings({"device": "cuda"}), nothing)
    assert keys(ours.runs) == keys(wanted(find(["table1"]), smoke, nothing).runs)
    assert {run.config.device for run in ours.runs} == {"cuda"}


def test_the_smoke_scale_has_two_points_of_every_sweep() -> None:
    assert {len(sweep) for sweep in SCALES["smoke"].sweeps.values()} == {2}
