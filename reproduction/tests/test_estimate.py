"""Time left, from runs that were measured."""

from __future__ import annotations

import pytest
from gapsl_reproduction.progress import Pace, samples_of, time_left
from gapsl_reproduction.runs import RunSpec, run_spec

BASE = {"dataset": "cifar10", "model": "vgg16", "width": 0.125, "rounds": 100, "batch_size": 32}


def measured(run: RunSpec, seconds: float, rounds: int = 100) -> dict:
    return {"config": run.settings, "rounds": rounds, "elapsed": seconds}


def test_the_same_model_and_method_scaled_by_rounds_devices_and_batch() -> None:
    psl, gapsl = run_spec(BASE, {"method": "psl"}), run_spec(BASE, {"method": "gapsl"})
    pace = Pace([measured(psl, 10.0), measured(gapsl, 40.0)])
    assert pace.of_run(psl.config) == pytest.approx(10)
    larger = {"rounds": 200, "devices": 40, "batch_size": 64, "seed": 3}
    assert pace.of_run(run_spec(BASE, {"method": "psl"}, larger).config) == pytest.approx(10 * 2 * 4 * 2)
    assert pace.of_run(run_spec(BASE, {"method": "gapsl", "participation": 0.5}).config) == pytest.approx(20)


def test_another_method_costs_the_average_of_its_model_and_another_model_that_of_all() -> None:
    runs = [run_spec(BASE, {"method": method}) for method in ("psl", "gapsl")]
    other = run_spec(BASE, {"method": "psl", "model": "small", "width": 1.0})
    pace = Pace([measured(runs[0], 10.0), measured(runs[1], 40.0), measured(other, 1.0)])
    assert pace.of_run(run_spec(BASE, {"method": "sfl"}).config) == pytest.approx(25)
    assert pace.of_run(run_spec(BASE, {"model": "mlp", "width": 1.0}).config) == pytest.approx(17)
    assert Pace().of_run(runs[0].config) is None


def test_a_failed_run_counts_for_the_rounds_it_did() -> None:
    run = run_spec(BASE, {"method": "psl"})
    assert Pace([measured(run, 1.0, rounds=10)]).of_run(run.config) == pytest.approx(10)


def test_epochs_are_counted_in_samples() -> None:
    run = run_spec({"dataset": "cifar10", "epochs": 3, "train_samples": 20_000, "validation": 0.1})
    assert samples_of(run.config) == pytest.approx(3 * 18_000)
    assert samples_of(run_spec({"dataset": "cifar100", "epochs": 2}).config) == 100_000


def test_what_is_left_is_shared_by_the_workers_but_no_run_is_divided() -> None:
    assert time_left([10, 10, 10, 10], [], 2) == 20
    assert time_left([], [30, 5], 2) == 30
    assert time_left([10, None], [20], 1) == 45, "the unknown one counts as the average"
    assert time_left([None], [], 2) is None
    assert time_left([], [], 2) == 0
