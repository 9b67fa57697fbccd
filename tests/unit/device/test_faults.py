"""Devices that misbehave on purpose, and a device that trains alone."""

import pytest
import torch
from quick import device_states, prepared, same_state, server_state, trained

from gapsl.common.errors import InputError
from gapsl.device.faults import make_faults


def exchange_of(training):
    exchange = next(training.strategy.exchanges(1, training.present(1)))
    return exchange, {upload.device: upload for upload in training.fleet.collect(1, exchange)}


def test_so_many_devices_as_asked_for_are_drawn_from_the_seed():
    found = [make_faults("noise:3", devices=10, seed=seed).devices for seed in range(5)]
    assert all(len(set(devices)) == 3 for devices in found)
    assert len(set(found)) > 1
    assert make_faults("noise:3", devices=10, seed=0).devices == found[0]


@pytest.mark.parametrize(("devices", "way"), [(3, "N from 1 to 2"), (1, "set devices = 2 or more")])
def test_somebody_is_honest(devices, way):
    with pytest.raises(InputError, match=way):
        make_faults(f"flip:{devices}", devices=devices, seed=0)


def test_none_is_the_plain_run():
    same_state(server_state(trained(method="psl", faults="none")), server_state(trained(method="psl")))


@pytest.mark.parametrize("spec", ["labels:1", "permute:1", "noise:1", "scale:1"])
def test_only_the_faulty_device_sends_something_else(spec):
    honest, faulty = prepared(method="psl"), prepared(method="psl", faults=spec)
    (bad,) = make_faults(spec, devices=3, seed=0).devices
    _, good = exchange_of(honest)
    _, found = exchange_of(faulty)
    for device in good:
        same = torch.equal(good[device].activations, found[device].activations) and torch.equal(
            good[device].labels, found[device].labels
        )
        assert same == (device != bad)


def test_noise_has_the_size_of_what_it_replaces():
    honest = prepared(method="psl", batch_size=64)
    faulty = prepared(method="psl", batch_size=64, faults="noise:1")
    (bad,) = make_faults("noise:1", devices=3, seed=0).devices
    real, noise = exchange_of(honest)[1][bad].activations, exchange_of(faulty)[1][bad].activations
    assert noise.std().item() == pytest.approx(real.std().item(), rel=0.15)
    assert noise.shape == real.shape


def test_permuted_labels_are_each_the_next_class_in_every_round():
    honest, faulty = prepared(method="psl"), prepared(method="psl", faults="permute:1")
    (bad,) = make_faults("permute:1", devices=3, seed=0).devices
    real, found = exchange_of(honest)[1][bad], exchange_of(faulty)[1][bad]
    assert torch.equal(found.labels, (real.labels + 1) % 10)
    assert torch.equal(found.activations, real.activations)


def test_scaled_activations_are_a_hundred_times_too_long():
    honest, faulty = prepared(method="psl"), prepared(method="psl", faults="scale:1")
    (bad,) = make_faults("scale:1", devices=3, seed=0).devices
    real, found = exchange_of(honest)[1][bad], exchange_of(faulty)[1][bad]
    assert torch.equal(found.activations, real.activations * 100)
    assert torch.equal(found.labels, real.labels)


CORRECTED = {"calibration": "prior", "calibration_for": "devices", "balance": "classes"}


@pytest.mark.parametrize(
    "settings", [{}, {"calibration": "prior"}, CORRECTED], ids=["plain", "prior", "both"]
)
def test_a_flipped_device_gets_and_gives_the_opposite_gradient(settings):
    honest, faulty = (prepared(method="psl", faults=faults, **settings) for faults in ("none", "flip:1"))
    (bad,) = make_faults("flip:1", devices=3, seed=0).devices
    replies = []
    for training in (honest, faulty):
        exchange, uploads = exchange_of(training)
        replies.append(training.strategy.step(1, exchange, uploads.values()))
    for device, reply in replies[0].replies.items():
        sign = -1 if device == bad else 1
        assert torch.allclose(replies[1].replies[device].gradient, sign * reply.gradient)
    assert replies[1].losses == replies[0].losses


@pytest.mark.parametrize("method", ["psl", "gapsl", "sfl", "vanilla", "epsl", "frozen"])
@pytest.mark.parametrize("kind", ["flip", "labels", "permute", "noise", "scale"])
def test_every_method_trains_beside_a_faulty_device(method, kind):
    trained(method=method, faults=f"{kind}:1")


def test_bad_specs_say_what_to_write():
    with pytest.raises(InputError, match="noise:2"):
        prepared(faults="noize:2")
    for spec in ("noise", "noise:0", "noise:9", "noise:x"):
        with pytest.raises(InputError, match="noise:N"):
            prepared(faults=spec)
    with pytest.raises(InputError, match="no devices"):
        prepared(method="central", faults="noise:1")


def test_a_single_device_trains_as_it_would_alone(tmp_path):
    training = trained(method="single", single={"device": 1})
    states = device_states(training, tmp_path)
    start = device_states(prepared(method="single"), tmp_path / "start")
    for device in (0, 2):
        same_state(states[device], start[device])
    assert any(not torch.equal(states[1][name], start[1][name]) for name in start[1])
    assert training.state.history[-1].device_std == 0


def test_a_single_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="numbered 0 to 2"):
        prepared(method="single", single={"device": 3})
