"""The key of a run: the same for the same experiment, whoever asks for it and in which words."""

from __future__ import annotations

import json

import pytest
from gapsl_reproduction.runs import essential, key_of, of_config, run_spec

from gapsl.run.api import compose
from gapsl.run.config import Config, make_config

BASE = {"method": "gapsl", "dataset": "cifar10", "rounds": 7, "gapsl": {"eta": 0.3}}


def test_a_key_is_what_it_was_in_the_first_version() -> None:
    """Stored results are found by these: they change only with a reason to do every run again."""
    assert run_spec({}).key == "7e1f36b6410229ae"
    assert run_spec(BASE).key == "ed500ab22385f0c4"


def test_defaults_may_be_written_out_or_not() -> None:
    written = {
        **Config().model_dump(mode="json"),
        **BASE,
        "gapsl": {"eta": 0.3, "k_min": 0.2, "lambda": 5e-4},
    }
    assert run_spec(written).key == run_spec(BASE).key
    assert run_spec({**BASE, "device_optimizer": {"lr": 0.01, "momentum": 0.9}}).key == run_spec(BASE).key


def test_a_default_of_a_later_version_does_not_rename_old_runs() -> None:
    settings = essential(make_config(BASE))
    assert settings == {**BASE, "seed": 0}
    assert key_of(settings) == run_spec(BASE).key


def test_the_order_of_settings_does_not_matter_nor_the_layers_they_come_in() -> None:
    turned = {key: BASE[key] for key in reversed(BASE)}
    assert run_spec(turned).key == run_spec(BASE).key
    assert run_spec({"dataset": "cifar10", "rounds": 9}, {"gapsl": {"eta": 0.3}}, {"rounds": 7}).key == (
        run_spec(BASE).key
    )
    optimizer = {"lr": 0.5, "momentum": 0.0}
    assert run_spec({"device_optimizer": optimizer}).key == (
        run_spec({"device_optimizer": dict(reversed(optimizer.items()))}).key
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
    assert run_spec(BASE, setting).key == run_spec(BASE).key


def test_only_the_section_that_the_method_reads_counts_and_aliases_are_the_same_method() -> None:
    assert run_spec({"method": "sfl", "gapsl": {"eta": 0.3}}).key == run_spec({"method": "sfl"}).key
    assert run_spec({"method": "sfl-v1"}).key == run_spec({"method": "sfl"}).key
    assert run_spec({"method": "sfl", "sfl": {"interval": 3}}).key != run_spec({"method": "sfl"}).key
    # The ablations read GAPSL's section, and their own setting in it is not GAPSL's.
    assert run_spec({"gapsl": {"ratio": 0.3}}).key == run_spec({}).key
    ablation = {"method": "gapsl/fixed-ratio"}
    assert run_spec(ablation, {"gapsl": {"ratio": 0.3}}).key != run_spec(ablation).key


@pytest.mark.parametrize(
    "setting",
    [{"seed": 1}, {"rounds": 8}, {"gapsl": {"eta": 0.4}}, {"partition": "iid"}, {"width": 0.5}],
    ids=lambda setting: next(iter(setting)),
)
def test_what_changes_the_numbers_changes_the_key(setting: dict) -> None:
    assert run_spec(BASE, setting).key != run_spec(BASE).key


def test_settings_give_the_run_back() -> None:
    run = run_spec(compose(preset_name="paper-cifar100-vit").resolved(), {"method": "vanilla", "seed": 4})
    again = of_config(make_config(json.loads(json.dumps(run.settings))))
    assert again.key == run.key
    again_resolved, resolved = again.config.resolved(), run.config.resolved()
    assert {name: again_resolved[name] for name in Config.model_fields if name != "sections"} == (
        {name: resolved[name] for name in Config.model_fields if name != "sections"}
    )


def test_names_tell_runs_apart() -> None:
    runs = [run_spec(BASE, {"gapsl": {"eta": eta}, "seed": seed}) for eta in (0.1, 0.2) for seed in (0, 1)]
    assert len({run.name for run in runs}) == 4
    assert runs[1].name.startswith("cifar10/small gapsl eta=0.1 dirichlet:0.1 lr 0.01/0.01 7 rounds seed 1 #")
