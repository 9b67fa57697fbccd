"""Learning rates: the same grid for everybody, chosen on the validation split, before anything else runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from gapsl_reproduction.catalogue import Experiment, Grid, Scale, Workload, wanted
from gapsl_reproduction.catalogue.lines import LINES, TABLE
from gapsl_reproduction.catalogue.scales import Rates, rates
from gapsl_reproduction.catalogue.tuning import ranked, search, searched_partition
from gapsl_reproduction.planned import Planned
from gapsl_reproduction.store import Result

from gapsl.common.errors import InputError

RATES = rates((0.5, 0.05, 0.005), (0.1,))
SCALE = Scale(
    name="test",
    summary="two seeds of a tiny thing",
    workloads={"cifar10": Workload({"validation": 0.1, "rounds": 3}, rates=RATES, search={"rounds": 2})},
    seeds={"rest": 2},
    sweeps={"alpha": {"0.9": {"partition": "dirichlet:0.9"}}},
)


def ended(validation: float | None, test: float = 0.0) -> Result:
    """A stored result with these accuracies; None: it failed."""
    if validation is None:
        return {"failed": "no finite gradient"}
    return {"final": {"device_mean": test, "validation": {"device_mean": validation}}}


def outcomes(runs: Mapping[Rates, Planned], *validation: float | None) -> dict[str, Result]:
    return {run.key: ended(accuracy) for run, accuracy in zip(runs.values(), validation, strict=True)}


def test_the_best_on_the_validation_split_is_chosen_whatever_the_test_set_says() -> None:
    runs = search(SCALE, "cifar10", "psl", "iid").trials
    found = {
        run.key: ended(validation, test)
        for run, validation, test in zip(runs.values(), (0.2, 0.6, 0.5), (0.9, 0.1, 0.8), strict=True)
    }
    assert ranked(runs, found.get) == [Rates(0.05, 0.1), Rates(0.005, 0.1), Rates(0.5, 0.1)]


def test_nothing_is_chosen_before_all_have_ended() -> None:
    searched = search(SCALE, "cifar10", "psl", "iid")
    found = outcomes(searched.trials, 0.2, 0.6, 0.5)
    for run in searched.trials.values():
        missing = {key: result for key, result in found.items() if key != run.key}
        assert searched.finalists(missing.get) == {}
        assert searched.chosen(missing.get) is None
    assert searched.chosen(found.get) is None, "the finalists have not"


def test_the_best_two_trials_are_run_at_full_length_and_the_better_of_those_is_taken() -> None:
    searched = search(SCALE, "cifar10", "psl", "iid")
    found = outcomes(searched.trials, 0.2, 0.6, 0.5)
    finalists = searched.finalists(found.get)
    assert list(finalists) == [Rates(0.05, 0.1), Rates(0.005, 0.1)]
    assert [run.config.rounds for run in finalists.values()] == [3, 3]
    found |= outcomes(finalists, 0.7, 0.8)
    assert searched.chosen(found.get) == Rates(0.005, 0.1), "it learns more slowly, and more"


def test_a_failed_run_is_the_worst_and_of_equals_the_first_is_taken() -> None:
    runs = search(SCALE, "cifar10", "psl", "iid").trials

    def best(*validation: float | None) -> Rates:
        order = ranked(runs, outcomes(runs, *validation).get)
        assert order is not None
        return order[0]

    assert best(None, 0.1, 0.1) == Rates(0.05, 0.1)
    assert best(None, None, 0.0) == Rates(0.005, 0.1)
    assert best(None, None, None) == Rates(0.005, 0.1), "the tamest is what is left"


def test_every_line_of_the_tables_has_the_same_grid_on_the_first_seed() -> None:
    for line in TABLE:
        searched = search(SCALE, "cifar10", line, "dirichlet:0.1")
        runs = searched.trials
        assert list(searched.full) == list(runs)
        assert {run.config.rounds for run in searched.full.values()} == {3}
        assert list(runs) == (list(RATES[:1]) if line == "frozen" else list(RATES)), line
        for tried, run in runs.items():
            assert (run.config.device_optimizer.lr, run.config.server_optimizer.lr) == tried
            assert (run.config.seed, run.config.rounds) == (0, 2), "trials may be shorter"
            assert run.config.partition == "dirichlet:0.1"
            assert run.config.method == LINES[line].settings["method"]


def test_an_ablation_takes_the_rates_of_what_it_is_an_ablation_of() -> None:
    assert search(SCALE, "cifar10", "rand-gda", "iid") == search(SCALE, "cifar10", "gapsl", "iid")


@pytest.mark.parametrize(
    ("partition", "found"),
    [
        ("iid", "iid"),
        ("iid+noise:0.3", "iid"),
        ("dirichlet:0.1", "dirichlet:0.1"),
        ("dirichlet:0.3,min=4", "dirichlet:0.1"),
        ("dirichlet:0.9", "dirichlet:0.1"),
        ("dirichlet:90", "iid"),
    ],
)
def test_a_partition_is_served_by_the_search_on_the_one_most_like_it(partition: str, found: str) -> None:
    assert searched_partition(partition, ("iid", "dirichlet:0.1")) == found
    if partition == "dirichlet:0.9":
        assert searched_partition(partition, ("iid", "dirichlet:0.1", "dirichlet:0.8")) == "dirichlet:0.8"


def test_another_kind_of_partition_is_refused() -> None:
    with pytest.raises(InputError, match="shards:2"):
        searched_partition("shards:2", ("iid",))


def test_the_plan_wants_the_search_first_and_then_what_it_chose() -> None:
    experiment = Experiment("x", "ours", "a test", (Grid(("psl", "frozen"), sweep="alpha"),))
    first = wanted([experiment], SCALE, lambda key: None)
    searched = search(SCALE, "cifar10", "psl", "dirichlet:0.9")
    assert {run.key for run in searched.trials.values()} < {run.key for run in first.runs}
    assert len(first.runs) == 4, "three for psl, one for frozen, whose halves have no rate"
    assert [run.config.partition for run in first.open] == ["dirichlet:0.9"] * 4, "to come, at some rate"

    server = search(SCALE, "cifar10", "frozen", "dirichlet:0.9")
    found = outcomes(searched.trials, 0.1, 0.2, 0.3) | outcomes(server.trials, 0.4)
    then = wanted([experiment], SCALE, found.get)
    finalists = searched.finalists(found.get)
    assert {run.key for run in finalists.values()} < {run.key for run in then.runs}
    assert then.open, "which of the two is not known yet"

    found |= outcomes(finalists, 0.4, 0.3) | outcomes(server.finalists(found.get), 0.5)
    last = wanted([experiment], SCALE, found.get)
    assert last.open == []
    shown = [run for run in last.runs if run.config.method == "psl" and run.config.rounds == 3]
    chosen = [run for run in shown if run.config.device_optimizer.lr == 0.005]
    assert [run.config.seed for run in chosen] == [0, 1]
    assert all(run.config.partition == "dirichlet:0.9" for run in shown)
    assert {run.config.seed for run in shown if run.config.device_optimizer.lr != 0.005} == {0}, "finalists"


def test_without_a_grid_nothing_is_searched() -> None:
    plain = replace(SCALE, workloads={"cifar10": Workload({"rounds": 3, "device_optimizer": {"lr": 0.7}})})
    found = wanted([Experiment("x", "ours", "a test", (Grid(("psl",)),))], plain, lambda key: None)
    assert [(run.config.seed, run.config.device_optimizer.lr) for run in found.runs] == [(0, 0.7), (1, 0.7)]
    assert not found.open


def test_a_grid_without_a_validation_split_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="validation"):
        Workload({"rounds": 3}, rates=RATES)
