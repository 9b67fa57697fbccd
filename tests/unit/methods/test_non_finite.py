"""A device whose loss or gradient is not a number is left out for the round, and the round goes on."""

import math

import pytest
import torch
from tiny import (
    AT_ONCE,
    PARALLEL,
    buffers,
    choose,
    method,
    play,
    product_loss,
    server_named,
    uploads_for,
    weights,
)

from gapsl.methods import Exchange, Upload

BAD = 1


def spoiled(uploads, value):
    """The same uploads, with one number of one device replaced."""
    broken = list(uploads)
    upload = uploads[BAD]
    activations = upload.activations.clone()
    activations[0, 0] = value
    broken[BAD] = Upload(upload.device, upload.round, upload.turn, activations, upload.labels)
    return broken


def settings_for(name):
    return {"exclusion": "none"} if name.startswith("gapsl") else {}


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_it_is_skipped_and_told_to_skip_its_step(name, value):
    """An infinite activation has a finite loss behind a tanh, and a NaN in its gradient."""
    strategy = method(name, server_named("tanh"), **settings_for(name))
    outcome = play(strategy, spoiled(uploads_for("tanh"), value))
    assert list(outcome.skipped) == [BAD]
    assert sorted(outcome.losses) == [0, 2, 3]
    assert torch.isfinite(weights(strategy)).all()
    if name != "frozen":
        assert not outcome.replies[BAD].step
        assert not outcome.replies[BAD].gradient.any()
        assert all(outcome.replies[d].step and outcome.replies[d].gradient.any() for d in (0, 2, 3))


@pytest.mark.parametrize("phi", [0.3, 1.0])
@pytest.mark.parametrize("hidden", ["mean", "per-device"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_under_epsl_the_others_are_as_if_it_were_absent(phi, hidden, value):
    check_absent("epsl", value, phi=phi, hidden=hidden)


@pytest.mark.parametrize("name", sorted({*PARALLEL, "sfl"} - {"epsl"}))
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_others_are_as_if_it_were_absent(name, value):
    check_absent(name, value)


def check_absent(name, value, server="tanh", **settings):
    model, uploads = server_named(server), uploads_for(server)
    with_it, without = method(name, model, **settings), method(name, model, **settings)
    outcome = play(with_it, spoiled(uploads, value))
    clean = play(without, [u for u in uploads if u.device != BAD])
    assert torch.equal(weights(with_it), weights(without))
    assert torch.equal(buffers(with_it), buffers(without))
    for device, reply in clean.replies.items():
        assert torch.equal(outcome.replies[device].gradient, reply.gradient)
        assert outcome.replies[device].step == reply.step
    assert outcome.selection == clean.selection


@pytest.mark.parametrize("name", PARALLEL)
def test_its_batch_does_not_reach_the_running_statistics(name):
    check_absent(name, math.nan, server="batch-norm")


@pytest.mark.parametrize("name", AT_ONCE)
def test_angles_are_those_between_the_devices_in_the_loss(name):
    strategy = method(name, server_named("tanh"), **settings_for(name))
    outcome = play(strategy, spoiled(uploads_for("tanh"), math.nan), measure=True)
    assert outcome.angles.shape == (3, 3)
    assert torch.isfinite(outcome.angles).all()


def test_sfl_measures_angles_between_averagings_without_it_too():
    strategy = method("sfl", server_named("tanh"))
    play(strategy, uploads_for("tanh"))
    outcome = play(strategy, spoiled(uploads_for("tanh", round=2), math.nan), round=2, measure=True)
    assert outcome.angles.shape == (3, 3)
    assert torch.isfinite(outcome.angles).all()


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_round_without_a_finite_device_moves_nothing(name):
    model = server_named("batch-norm")
    strategy = method(name, model)
    before, running = weights(strategy), buffers(strategy)
    broken = [
        Upload(u.device, u.round, u.turn, torch.full_like(u.activations, math.nan), u.labels)
        for u in uploads_for("batch-norm")
    ]
    outcome = play(strategy, broken)
    assert sorted(outcome.skipped) == [0, 1, 2, 3]
    assert outcome.losses == {}
    assert torch.equal(weights(strategy), before)
    assert torch.equal(buffers(strategy), running)


@pytest.mark.parametrize("name", ["vanilla", "central"])
def test_methods_with_turns_skip_it_too(name):
    strategy = method(name, server_named("tanh"), devices=1)
    before = weights(strategy)
    upload = spoiled(uploads_for("tanh"), math.nan)[BAD]
    outcome = strategy.step(1, Exchange((BAD,)), [upload])
    assert list(outcome.skipped) == [BAD]
    assert not outcome.replies[BAD].step
    assert torch.equal(weights(strategy), before)


def test_frozen_replies_to_nobody_whatever_happens():
    """No reply is due where nobody learns: a reply would be counted as bytes that were sent."""
    strategy = method("frozen", server_named("tanh"))
    assert play(strategy, spoiled(uploads_for("tanh"), math.nan)).replies == {}


def test_a_large_gradient_whose_sum_overflows_is_still_finite():
    model, uploads = choose([[3e38, 3e38], [1e38, 1e38]], dtype=torch.float32, weight=[0.0, 0.0])
    found = method("psl", model, devices=2, loss=product_loss).server.first_order(uploads[0])
    assert torch.isfinite(found.gradient).all()
    assert found.finite


def test_a_penalty_that_is_not_finite_leaves_its_device_out_alone():
    """|x|**1.5 has a first derivative at 0 and no second one."""

    def loss(logits, labels, device):
        plain = torch.nn.functional.cross_entropy(logits, labels)
        return plain if device != BAD else plain + (logits - logits.detach()).abs().pow(1.5).sum()

    model, uploads = server_named("tanh"), uploads_for("tanh")
    settings = {"exclusion": "none", "k_min": 0.25, "k_max": 0.25, "lambda": 1.0}
    strategy = method("gapsl", model, loss=loss, **settings)
    outcome = play(strategy, uploads)
    assert outcome.selection.leader != (BAD,)
    assert list(outcome.skipped) == [BAD]
    assert not outcome.replies[BAD].step
    assert outcome.selection.kept == (0, 2, 3)
    assert torch.isfinite(weights(strategy)).all()
    assert all(torch.isfinite(reply.gradient).all() for reply in outcome.replies.values())


def steep(logits, labels, device):
    """A loss that is a number everywhere; one device's has no derivative where it is."""
    plain = torch.nn.functional.cross_entropy(logits, labels)
    return plain if device != BAD else plain + (logits - logits.detach()).square().sum().sqrt()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("psl", {}),
        ("gapsl", {}),
        ("sfl", {}),
        *(("epsl", {"phi": phi, "hidden": h}) for phi in (0.3, 1.0) for h in ("mean", "per-device")),
    ],
)
def test_a_finite_loss_without_a_finite_gradient_is_skipped_too(name, settings):
    model, uploads = server_named("tanh"), uploads_for("tanh")
    with_it, without = (method(name, model, loss=steep, **settings) for _ in range(2))
    outcome = play(with_it, uploads)
    clean = play(without, [u for u in uploads if u.device != BAD])
    assert list(outcome.skipped) == [BAD]
    assert torch.equal(weights(with_it), weights(without))
    for device, reply in clean.replies.items():
        assert torch.equal(outcome.replies[device].gradient, reply.gradient)
