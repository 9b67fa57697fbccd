"""The catalogue: what it wants at which scale, and keys under which results are stored already."""

from __future__ import annotations

from pathlib import Path

import pytest
from gapsl_reproduction.catalogue import EVERY, EXPERIMENTS, GROUPS, LINES, PARTS, find
from gapsl_reproduction.plan import Candidate, planned, ranked, trials, wanted
from gapsl_reproduction.report.frame import Evidence
from gapsl_reproduction.runs import RENAMED, defaults
from gapsl_reproduction.scales import LARGE, SCALES, STANDARD, Rates, Workload, find_scale
from gapsl_reproduction.store import Store

from gapsl.common.errors import InputError
from gapsl.methods.registry import METHODS
from gapsl.run.config import INCIDENTAL, Config, flat

ROOT = Path(__file__).parents[2]
CIFAR10 = STANDARD.workloads["cifar10"]
# With the first pair of rates, where there is a choice.
CELLS = {
    ("gapsl", "iid", 0): "6bafa41ab308c221",
    ("papsl", "alpha 0.1", 0): "9e724f8249948d47",
    ("papsl as found", "alpha 0.1", 0): "9ea69887a3371821",
    ("papsl agreeing on gradients", "alpha 0.1", 0): "11f0ed873250bc39",
    ("psl", "the paper's rates", 0): "9af277ccc5fb0ed4",
    ("sfl", "the paper's rates", 0): "473a355b58917f7f",
    ("frozen", "twice as long", 0): "025451a304a40e58",
    ("gapsl", "flip:3", 0): "151344fa8ab5ac6f",
    ("psl", "40 devices", 0): "f61edcc98fab4717",
    ("gapsl", "ratio 0.4", 0): "ecd7e13bb0f177c4",
}
TRIALS = {
    "central": ("b28dbf335a576e2b", "8df4a8585b12b67c"),
    "psl": ("e5e0a036b0304003", "4c37134cc0aa3718"),
    "sfl": ("f5a16344280b1834", "6c33d5c8e0e4f370"),
    "gapsl": ("b769ba997cc7cdd4", "7c44bfe04643c184"),
    "frozen": ("5a6c5c2b095d1096", "047fd234082c75cc"),
    "papsl": ("65b4f2b1a06a6851", "d71140afd7310a2e"),
    "papsl agreeing on gradients": ("313cc535e9349926", "c65f50c6ecafa2fb"),
    "papsl as found": ("dd600a556790940b", "d183efd65a1fad91"),
}
WHY = (
    "results of standard are stored under these keys. If a default changed, the key must not: defaults.json "
    "is frozen. If a setting was renamed, put its new name and its old one into runs.RENAMED"
)


def test_lower_rates_are_tried_with_what_the_lowest_suited_best_and_only_with_that() -> None:
    stored = Store(ROOT / "results" / "standard", warn=pytest.fail)
    evidence = Evidence(STANDARD, stored.get)
    for line, found in LINES.items():
        tried = evidence.best_trials(line, by="rates")
        of_all = {rates: tried[rates] for rates in CIFAR10.rates if rates in tried}
        if not found.tuned_as and found.clients_learn and len(of_all) == len(CIFAR10.rates):
            assert found.lower == (max(of_all, key=lambda rates: of_all[rates]) == min(CIFAR10.rates[:2])), (
                line
            )


def nothing(key: str) -> None:
    return None


def test_the_keys_of_standard_stay_what_they_are() -> None:
    found = {
        (each.cell.line, each.cell.condition, each.cell.seed): each.run.key
        for each in planned(EXPERIMENTS.values(), STANDARD, nothing)
    }
    assert {cell: found[cell] for cell in CELLS} == CELLS, WHY
    for line, keys in TRIALS.items():
        assert tuple(run.key for run in trials(CIFAR10, line).values())[:2] == keys, WHY


def test_every_setting_has_its_place_in_the_frozen_table() -> None:
    """Of all sections: a setting of a method is one when a run of this method sets it."""
    aside = INCIDENTAL | {"device", "threads", "method", "seed", "sections", "custom"}
    names = {
        name
        for method in METHODS.values()
        for name in (*_own(method), *flat(Config().model_dump(mode="json", exclude=aside)))
    }
    missing = sorted(name for name in names if RENAMED.get(name, name) not in defaults())
    assert not missing, (
        f"{missing}: a new setting goes into reproduction's defaults.json with the value that leaves stored "
        "runs what they are; a renamed one into runs.RENAMED, with its name there"
    )


def _own(method: type) -> list[str]:
    if method.section is None:
        return []
    fields = method.parameters.model_fields
    return [f"{method.section}.{field.alias or name}" for name, field in fields.items()]


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_experiment_can_be_planned_and_lines_share_no_cell(scale) -> None:
    every = planned(EXPERIMENTS.values(), scale, nothing)
    assert len({each.cell for each in every}) == len(every)
    assert {each.cell.line for each in every} >= {*EVERY, *PARTS, "central"}
    assert {each.run.config.seed for each in every} == set(range(max(scale.seeds.values())))
    found = wanted(EXPERIMENTS.values(), scale, nothing)
    keys = [run.key for run in (*found.runs, *found.open)]
    assert len(set(keys)) == len(keys)


def test_what_matters_comes_first_and_trials_before_what_they_decide() -> None:
    order = [(each.cell.line, each.cell.condition) for each in planned(find(["all"]), STANDARD, nothing)]
    assert order[0] == ("central", "alpha 0.1")
    assert order.index(("papsl", "alpha 0.1")) < order.index(("vanilla", "alpha 0.1"))
    assert order.index(("frozen", "twice as long")) < order.index(("psl", "flip:3"))
    found = wanted(find(["core"]), STANDARD, nothing)
    assert [run.key for run in found.runs][:5] == [run.key for run in trials(CIFAR10, "central").values()]
    settled = [run.name for run in found.runs if "lr 0.005/0.01" in run.name]
    assert len(settled) == 3, "the paper's rates wait for no trial but of what it leaves open"


def test_in_large_steps_central_takes_as_many_as_others_take_by_the_same_samples() -> None:
    usual, large = (STANDARD.workloads[name].settings for name in ("cifar10", LARGE))
    assert large["batch_size"] == 10 * usual["batch_size"] and 10 * large["rounds"] == usual["rounds"]
    tried, usual_trial = STANDARD.workloads[LARGE].trial, CIFAR10.trial
    assert tried["rounds"] == usual_trial["rounds"] // 10 and tried["server_optimizer"] == {"warmup": 3}
    changed = {name for name in usual if large[name] != usual[name]}
    optimizers = {"device_optimizer", "server_optimizer"}
    assert changed == {"batch_size", "rounds", "evaluate_every", "checkpoint_every", *optimizers}
    for name in optimizers:
        assert {**large[name], "warmup": 10 * large[name]["warmup"] + 1} == usual[name]


def test_every_method_has_the_same_rates_and_ablations_those_of_the_whole() -> None:
    rates, lower = set(CIFAR10.rates), set(CIFAR10.lower)
    for line, settings in LINES.items():
        tried = {candidate.rates for candidate in trials(CIFAR10, line)}
        assert tried - lower == rates, line
        if settings.tuned_as:
            assert trials(CIFAR10, line) is trials(CIFAR10, settings.tuned_as)
    assert max(lower) < min(rates)
    stored = Store(ROOT / "results" / "standard", warn=pytest.fail)
    for line, settings in LINES.items():
        chosen = ranked(trials(CIFAR10, line), stored.get)
        if chosen and settings.clients_learn and not settings.tuned_as:
            lowest = next(each for each in chosen if each.rates not in lower).rates == min(rates, key=sum)
            assert settings.lower == lowest, f"{line}: lower rates are tried where the lowest suit best"
    assert not lower & {candidate.rates for candidate in trials(CIFAR10, "papsl")}, "not in our favour"
    assert len(trials(CIFAR10, "sfl")) == 3 * len(rates), "with each of three intervals"
    assert len(trials(CIFAR10, "gapsl")) == 3 * len(rates | lower), "with each of three etas"
    assert Candidate(Rates(0.1, 0.2), choice=2).over("non-lgi")["gapsl"] == {"eta": -1.0}
    candidate = Candidate(Rates(0.1, 0.2), choice=1)
    assert candidate.over("sfl")["sfl"] == {"interval": 5}
    assert Candidate(Rates(0.1, 0.2)).over("sfl every 5 rounds")["sfl"] == {"interval": 5}, (
        "what the line sets is not a choice"
    )
    assert Candidate(Rates(0.1, 0.2)).over("frozen")["server_optimizer"] == {"lr": 0.2}


def test_the_best_trial_on_the_validation_split_is_taken_when_all_have_ended() -> None:
    tried = trials(CIFAR10, "frozen")
    keys = [run.key for run in tried.values()]
    results = {
        key: {"final": {"validation": {"device_mean": value}, "device_mean": 1 - value}}
        for key, value in zip(keys, (0.3, 0.5, 0.4), strict=False)
    }
    cells = {each.cell: each for each in planned([EXPERIMENTS["table1"]], STANDARD, results.get)}
    assert not any(each.settled for cell, each in cells.items() if cell.line == "frozen")
    results[keys[3]] = {"failed": "no finite loss"}
    cells = {each.cell: each for each in planned([EXPERIMENTS["table1"]], STANDARD, results.get)}
    own = [each for cell, each in cells.items() if cell.line == "frozen"]
    assert all(each.settled and each.chosen == list(tried)[1] for each in own)
    assert {each.run.config.device_optimizer.lr for each in own} == {0.03}
    for key in keys:
        results[key] = {"failed": "no finite loss"}
    (first, *_) = planned([EXPERIMENTS["protocol"], EXPERIMENTS["table1"]], STANDARD, results.get)
    chosen = {each.chosen for each in planned([EXPERIMENTS["table1"]], STANDARD, results.get)}
    assert min(tried, key=lambda each: each.rates) in chosen, "of those that fail the smallest rates"
    assert first.cell.line == "central"


def test_rates_need_a_validation_split() -> None:
    with pytest.raises(ValueError, match="validation"):
        Workload({"dataset": "digits"}, rates=(Rates(0.1, 0.1),))


def test_names_that_are_not_there_are_refused_with_the_nearest() -> None:
    assert [each.name for each in find(["core", "table1"])] == list(GROUPS["core"])
    with pytest.raises(InputError, match="did you mean 'table1'"):
        find(["tabel1"])
    with pytest.raises(InputError, match="did you mean 'standard'"):
        find_scale("standrd")
    with pytest.raises(InputError, match=r"too small .* use standard"):
        find_scale("reduced")
