"""PAPSL: PSL with the options of the preset `recommended`, each settable."""

import pytest

import gapsl
from gapsl.methods.papsl import Papsl
from gapsl.run.config import make_config, preset

SMALL = {
    "dataset": "digits", "train_samples": 120, "test_samples": 40, "devices": 4, "batch_size": 6, "rounds": 4,
    "partition": "dirichlet:0.1", "model": "small", "width": 0.5,
}  # fmt: skip


def sha(**settings):
    return gapsl.train(**{**SMALL, **settings}).final.weights_sha256


def test_it_lays_the_preset_under_what_is_given():
    values = preset("recommended")
    assert values.pop("method") == "psl"
    assert values == Papsl.defaults
    config = make_config({"method": "papsl", "probes": 3, "device_optimizer": {"momentum": 0.5}})
    assert (config.probes, config.probe_steps, config.calibration) == (3, 8, "prior")
    assert (config.device_optimizer.lr, config.device_optimizer.momentum) == (0.003, 0.5)
    assert config.resolved()["probe_steps"] == 8
    assert make_config(config.resolved()) == config


def test_it_is_the_same_run_as_the_preset_to_the_bit():
    assert sha(method="papsl") == sha(preset="recommended")
    changed = {"probes": 1, "balance": "none", "seed": 3}
    assert sha(method="papsl", **changed) == sha(preset="recommended", **changed) != sha(method="papsl")


def test_everything_switched_off_is_psl():
    off = {
        "probes": 0, "calibration": "none", "balance": "none", "device_gradient": "follow",
        "device_optimizer": {"lr": 0.01},
    }  # fmt: skip
    assert sha(method="papsl", **off) == sha(method="psl")


def test_a_configuration_of_another_method_gives_it_no_defaults_of_that_method():
    assert sha(config=make_config({"method": "psl", "seed": 2}), method="papsl") == sha(
        method="papsl", seed=2
    )


def test_it_is_compared_with_others_under_the_settings_given(tmp_path):
    done = gapsl.compare(["psl", "papsl"], out=tmp_path / "runs", workers=0, probe_steps=2, **SMALL)
    found = {result.method: result.config for result in done.results}
    assert (found["papsl"]["probes"], found["papsl"]["probe_steps"]) == (2, 2), "what is given wins"
    assert (found["psl"]["probes"], found["psl"]["calibration"]) == (0, "none")


def test_labels_stay_at_the_server():
    with pytest.raises(gapsl.GapslError, match="not with papsl; set labels = server"):
        gapsl.train(method="papsl", labels="device", **SMALL)
