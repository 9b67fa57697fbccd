"""Runs whose losses leave the devices' label frequencies out, and runs in another memory order."""

import json

import pytest
import torch
from quick import device_states, near_state, prepared, same_state, server_state, trained

import gapsl
from gapsl.common.errors import InputError
from gapsl.run.checkpoint import _digest
from gapsl.run.folder import RunFolder

SKEWED = {"partition": "dirichlet:0.1", "devices": 4, "rounds": 6}


@pytest.mark.parametrize("method", ["psl", "gapsl", "sfl", "epsl", "vanilla", "frozen"])
def test_calibration_changes_the_training_of_every_method_under_skew(method):
    plain = trained(method=method, **SKEWED)
    other = trained(method=method, calibration="prior", **SKEWED)
    different = [
        not torch.equal(a, b)
        for a, b in zip(server_state(plain).values(), server_state(other).values(), strict=True)
    ]
    assert any(different)


@pytest.mark.parametrize("method", ["psl", "gapsl", "sfl", "sfl-v2", "vanilla"])
def test_calibration_for_the_devices_changes_what_they_get_and_not_the_servers_first_step(method, tmp_path):
    settings = {**SKEWED, "rounds": 1, "device_optimizer": {"lr": 0.1}}
    plain = trained(method=method, **settings)
    other = trained(method=method, calibration="prior", calibration_for="devices", **settings)
    states = [device_states(training, tmp_path / str(i)) for i, training in enumerate((plain, other))]
    changed = [
        any(not torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(states[0], states[1], strict=True)
    ]
    assert any(changed)
    if method in ("psl", "gapsl"):  # the others have several steps in a round
        same_state(server_state(plain), server_state(other))


def test_settings_that_would_do_nothing_are_refused():
    with pytest.raises(InputError, match="calibration_for = both"):
        prepared(method="epsl", calibration="prior", calibration_for="devices", **SKEWED)
    with pytest.raises(InputError, match="balance = none"):
        prepared(method="psl", calibration="prior", balance="classes", **SKEWED)


def test_tau_zero_is_the_plain_run_to_the_bit():
    plain = trained(method="gapsl", **SKEWED)
    zero = trained(method="gapsl", calibration="prior", calibration_tau=0, **SKEWED)
    same_state(server_state(zero), server_state(plain))


def test_seen_counts_approach_declared_ones():
    training = prepared(method="psl", calibration="prior", calibration_counts="seen", **SKEWED)
    declared = prepared(method="psl", calibration="prior", **SKEWED)
    for round in range(1, 200):
        training.one_round(round)
    for device in range(4):
        found = training.strategy.calibration.shift(device).exp()
        assert torch.allclose(found, declared.strategy.server.loss.shift(device).exp(), atol=0.02)


def test_declared_counts_do_not_change_with_what_is_seen():
    training = prepared(method="psl", calibration="prior", **SKEWED)
    before = training.strategy.server.loss.state()
    training.one_round(1)
    assert training.strategy.server.loss.state() == before
    assert "calibration" not in training.strategy.state()


def test_checkpoints_written_before_options_were_part_of_the_strategy_are_read(tmp_path):
    settings = {
        **SKEWED, "method": "psl", "calibration": "prior", "calibration_counts": "seen", "dataset": "digits",
        "train_samples": 120, "test_samples": 40, "model": "mlp", "batch_size": 4, "checkpoint_every": 2,
    }  # fmt: skip
    whole = gapsl.train(out=tmp_path / "whole", **settings)
    calls = iter(range(1, 100))
    gapsl.train(out=tmp_path / "cut", stop=lambda: next(calls) >= 3, **settings)
    for path in (tmp_path / "cut" / "checkpoints").glob("*/state.json"):
        header = json.loads(path.read_text())
        header["state"]["calibration"] = header["state"]["strategy"].pop("calibration")
        del header["sha256"]
        path.write_text(json.dumps({**header, "sha256": _digest(header)}))
    resumed = gapsl.resume(tmp_path / "cut")
    assert resumed.final.weights_sha256 == whole.final.weights_sha256


def test_the_loss_of_a_round_does_not_depend_on_the_labels_of_that_round():
    """Counting inside a round would make the further passes of `exact` another loss than the first."""
    training = prepared(method="psl", calibration="prior", calibration_counts="seen", **SKEWED)
    uniform = prepared(method="psl", **SKEWED)
    exchange = next(training.strategy.exchanges(1, training.present(1)))
    first = training.strategy.step(1, exchange, training.fleet.collect(1, exchange))
    plain = uniform.strategy.step(1, exchange, uniform.fleet.collect(1, exchange))
    assert first.losses == pytest.approx(plain.losses)


def test_a_resumed_run_remembers_what_it_saw(tmp_path):
    settings = {
        **SKEWED, "method": "psl", "calibration": "prior", "calibration_counts": "seen", "dataset": "digits",
        "train_samples": 120, "test_samples": 40, "model": "mlp", "batch_size": 4, "checkpoint_every": 2,
    }  # fmt: skip
    whole = gapsl.train(out=tmp_path / "whole", **settings)
    calls = iter(range(1, 100))
    assert gapsl.train(out=tmp_path / "cut", stop=lambda: next(calls) >= 3, **settings) is None
    resumed = gapsl.resume(tmp_path / "cut")
    assert resumed.final.weights_sha256 == whole.final.weights_sha256


def test_unknown_calibrations_and_wrong_taus_are_refused():
    with pytest.raises(InputError, match="calibration"):
        prepared(calibration="temperature")
    with pytest.raises(InputError, match="calibration_tau"):
        prepared(calibration="prior", calibration_tau=-1)


def test_channels_last_trains_the_same_model(tmp_path):
    settings = {"method": "psl", "model": "small", "width": 1.0, "precision": "float64"}
    plain, other = trained(**settings), trained(layout="channels-last", **settings)
    kernel = next(p for p in other.strategy.server_model().parameters() if p.dim() == 4)
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    near_state(server_state(other), server_state(plain), atol=1e-9)
    for a, b in zip(device_states(other, tmp_path / "a"), device_states(plain, tmp_path / "b"), strict=True):
        near_state(a, b, atol=1e-9)


def test_a_channels_last_run_resumes_to_the_bit(tmp_path):
    settings = {
        "method": "gapsl", "model": "small", "layout": "channels-last", "dataset": "digits", "devices": 3,
        "train_samples": 120, "test_samples": 40, "batch_size": 4, "rounds": 6, "checkpoint_every": 2,
    }  # fmt: skip
    whole = gapsl.train(out=tmp_path / "whole", **settings)
    calls = iter(range(1, 100))
    gapsl.train(out=tmp_path / "cut", stop=lambda: next(calls) >= 3, **settings)
    assert gapsl.resume(tmp_path / "cut").final.weights_sha256 == whole.final.weights_sha256


def test_records_tell_how_far_the_parts_went_and_how_long_gradients_are(tmp_path):
    out = tmp_path / "run"
    gapsl.train(
        method="gapsl", dataset="digits", train_samples=120, test_samples=40, devices=4, batch_size=4,
        model="mlp", rounds=5, evaluate_every=1, out=out,
    )  # fmt: skip
    records = list(RunFolder(out).records())
    for record in records:
        assert tuple(sorted(record.norms)) == record.selection.kept
        assert all(norm > 0 for norm in record.norms.values())
    drifts = [record.evaluation.drift for record in records]
    assert all(len(drift) == 4 for drift in drifts)
    assert max(drifts[-1].values()) > max(drifts[0].values()) > 0
    frozen = trained(method="frozen")
    assert list(frozen.fleet.drifts().values()) == [0.0, 0.0, 0.0]
