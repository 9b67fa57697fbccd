"""The key of a run: the same for the same experiment, whoever asks for it and in which words."""

from __future__ import annotations

import json

import pytest
from gapsl_reproduction.planned import essential, key_of, of_config, planned

from gapsl.run.api import compose
from gapsl.run.config import Config, make_config

BASE = {"method": "gapsl", "dataset": "cifar10", "rounds": 7, "gapsl": {"eta": 0.3}}


def test_a_key_is_what_it_was_in_the_first_version() -> None:
    """Stored results are found by these: they change only with a reason to do every run again."""
    assert planned({}).key == "7e1f36b6410229ae"
    assert planned(BASE).key == "ed500ab22385f0c4"


def test_defaults_may_be_written_out_or_not() -> None:
    written = {
        **Config().model_dump(mode="json"),
        **BASE,
        "gapsl": {"eta": 0.3, "k_min": 0.2, "lambda": 5e-4},
    }
    assert planned(written).key == planned(BASE).key
    assert planned({**BASE, "device_optimizer": {"lr": 0.01, "momentum": 0.9}}).key == planned(BASE).key


def test_a_default_of_a_later_version_does_not_rename_old_runs() -> None:
    settings = essential(make_config(BASE))
    assert settings == {**BASE, "seed": 0}
    assert key_of(settings) == planned(BASE).key


def test_the_order_of_settings_does_not_matter_nor_the_layers_they_come_in() -> None:
    turned = {key: BASE[key] for key in reversed(BASE)}
    assert planned(turned).key == planned(BASE).key
    assert planned({"dataset": "cifar10", "rounds": 9}, {"gapsl": {"eta": 0.3}}, {"rounds": 7}).key == (
        planned(BASE).key
    )
    optimizer = {"lr": 0.5, "momentum": 0.0}
    assert planned({"device_optimizer": optimizer}).key == (
        planned({"device_optimizer": dict(reversed(optimizer.items()))}).key
    )


@pytest.mark.parametrize(
    "setting",
    [
        {"data_dir": "/elsewhere"},
        {"tensorboard": True},
        {"checkpoint_every": 3},
        {"keep_checkpoints": 5},
        {"device": "cuda"},
        {"threads": 2},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_where_and_how_carefully_it_is_computed_does_not_make_it_another_run(setting: dict) -> None:
    assert planned(BASE, setting).key == planned(BASE).key


def test_only_the_section_that_the_method_reads_counts_and_aliases_are_the_same_method() -> None:
    assert planned({"method": "sfl", "gapsl": {"eta": 0.3}}).key == planned({"method": "sfl"}).key
    assert planned({"method": "sfl-v1"}).key == planned({"method": "sfl"}).key
    assert planned({"method": "sfl", "sfl": {"interval": 3}}).key != planned({"method": "sfl"}).key
    # The ablations read GAPSL's section, and their own setting in it is not GAPSL's.
    assert planned({"gapsl": {"ratio": 0.3}}).key == planned({}).key
    ablation = {"method": "gapsl/fixed-ratio"}
    assert planned(ablation, {"gapsl": {"ratio": 0.3}}).key != planned(ablation).key


@pytest.mark.parametrize(
    "setting",
    [{"seed": 1}, {"rounds": 8}, {"gapsl": {"eta": 0.4}}, {"partition": "iid"}, {"width": 0.5}],
    ids=lambda setting: next(iter(setting)),
)
def test_what_changes_the_numbers_changes_the_key(setting: dict) -> None:
    assert planned(BASE, setting).key != planned(BASE).key


def test_settings_give_the_run_back() -> None:
    run = planned(compose(preset_name="paper-cifar100-vit").resolved(), {"method": "vanilla", "seed": 4})
    again = of_config(make_config(json.loads(json.dumps(run.settings))))
    assert again.key == run.key
    again_resolved, resolved = again.config.resolved(), run.config.resolved()
    assert {name: again_resolved[name] for name in Config.model_fields if name != "sections"} == (
        {name: resolved[name] for name in Config.model_fields if name != "sections"}
    )


def test_names_tell_runs_apart() -> None:
    runs = [planned(BASE, {"gapsl": {"eta": eta}, "seed": seed}) for eta in (0.1, 0.2) for seed in (0, 1)]
    assert len({run.name for run in runs}) == 4
    assert runs[1].name.startswith("cifar10/small gapsl eta=0.1 dirichlet:0.1 lr 0.01 seed 1 #")
