"""EPSL: the first ceil(phi * b) rows' last-layer gradients averaged over devices and broadcast."""

import math

import pytest
import torch
from tiny import BATCH, flat, method, play, server_named, uploads_for, weights
from torch import nn

from gapsl.methods import Upload

SAMPLES = [10, 20, 30, 40]


def rows_shared(outcome):
    """In how many leading rows do all devices get the same gradient?"""
    replies = [reply.gradient.flatten(1) for reply in outcome.replies.values()]
    same = [all(torch.equal(r[row], replies[0][row]) for r in replies) for row in range(len(replies[0]))]
    return same.index(False) if False in same else len(same)


@pytest.mark.parametrize("hidden", ["mean", "per-device"])
@pytest.mark.parametrize("phi", [0.01, 1 / 6, 0.2, 0.5, 0.9, 1.0])
def test_the_first_rows_are_broadcast_and_the_rest_are_each_device_s(phi, hidden):
    outcome = play(method("epsl", server_named("tanh"), phi=phi, hidden=hidden), uploads_for("tanh"))
    assert rows_shared(outcome) == math.ceil(phi * BATCH - 1e-9)


def test_a_share_that_is_a_whole_number_of_rows_is_not_rounded_up():
    """0.07 * 100 is 7.000000000000001 in floats, and 7 rows to everybody else."""
    generator = torch.Generator().manual_seed(0)
    uploads = [
        Upload(d, 1, 0, torch.randn(100, 5, generator=generator).double(), torch.arange(100) % 3)
        for d in range(2)
    ]
    outcome = play(method("epsl", server_named("tanh"), devices=2, phi=0.07), uploads)
    assert rows_shared(outcome) == 7


def last_layer_gradients(model, uploads):
    """d L_i / d logits for every device."""
    found = []
    for upload in uploads:
        logits = model(upload.activations).detach().requires_grad_()
        loss = nn.functional.cross_entropy(logits, upload.labels)
        found.append(torch.autograd.grad(loss, logits)[0])
    return found


def back(model, activations, last):
    """Back-propagate a gradient at the logits; on the weights (flat), and on the activations."""
    activations = activations.clone().requires_grad_()
    *on_weights, on_activations = torch.autograd.grad(
        model(activations), [*model.parameters(), activations], last
    )
    return torch.cat([g.flatten() for g in on_weights]), on_activations


REDUCTIONS = ["mean", "sum", "samples"]


def shares(reduction):
    """How much each device counts among all: alike, unless they count by their data."""
    return [n / sum(SAMPLES) if reduction == "samples" else 1 / len(SAMPLES) for n in SAMPLES]


def weights_in_loss(reduction):
    """What multiplies each device's loss in the round's."""
    return [1.0] * len(SAMPLES) if reduction == "sum" else shares(reduction)


def combined(weights, tensors):
    return sum(weight * tensor for weight, tensor in zip(weights, tensors, strict=True))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_hidden_mean_back_propagates_once_through_the_mean_activations(reduction):
    model, uploads = server_named("tanh"), uploads_for("tanh")
    epsl = method("epsl", model, samples=SAMPLES, phi=0.5, reduction=reduction)
    outcome = play(epsl, uploads)
    last = last_layer_gradients(model, uploads)
    shared, share, weight = 3, shares(reduction), weights_in_loss(reduction)
    averaged = combined(share, [g[:shared] for g in last])
    once, broadcast = back(model, combined(share, [u.activations[:shared] for u in uploads]), averaged)
    own = [back(model, u.activations[shared:], g[shared:]) for u, g in zip(uploads, last, strict=True)]
    # At PSL's scale: the averaged rows count as if each of the devices had sent them.
    step = sum(weight) * once + combined(weight, [g for g, _ in own])
    assert torch.allclose(flat(model) - weights(epsl), step, rtol=1e-11, atol=1e-14)
    for upload, scale, (_, rest) in zip(uploads, weight, own, strict=True):
        expected = scale * torch.cat([broadcast, rest])
        assert torch.allclose(outcome.replies[upload.device].gradient, expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_hidden_per_device_uses_each_device_s_own_and_averages_at_the_cut(reduction):
    model, uploads = server_named("tanh"), uploads_for("tanh")
    epsl = method("epsl", model, samples=SAMPLES, phi=0.5, hidden="per-device", reduction=reduction)
    outcome = play(epsl, uploads)
    last = last_layer_gradients(model, uploads)
    shared, share, weight = 3, shares(reduction), weights_in_loss(reduction)
    averaged = combined(share, [g[:shared] for g in last])
    passes = [
        back(model, u.activations, torch.cat([averaged, g[shared:]]))
        for u, g in zip(uploads, last, strict=True)
    ]
    step = combined(weight, [g for g, _ in passes])
    assert torch.allclose(flat(model) - weights(epsl), step, rtol=1e-11, atol=1e-14)
    broadcast = combined(share, [z[:shared] for _, z in passes])
    for upload, scale, (_, z) in zip(uploads, weight, passes, strict=True):
        expected = scale * torch.cat([broadcast, z[shared:]])
        assert torch.allclose(outcome.replies[upload.device].gradient, expected, rtol=1e-11, atol=1e-15)


def test_among_fewer_devices_the_weights_are_theirs_alone():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    some = method("epsl", model, samples=[10, 999, 30, 40])
    rest = method("epsl", model, samples=[10, 1, 30, 40])
    present = [u for u in uploads if u.device != 1]
    play(some, present)
    play(rest, present)
    assert torch.equal(weights(some), weights(rest))


def test_the_losses_reported_are_the_devices_own():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    assert play(method("epsl", model), uploads).losses == play(method("psl", model), uploads).losses


def test_angles_cost_further_passes_and_come_only_when_asked_for():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    assert play(method("epsl", model), uploads).angles is None
    measured = play(method("epsl", model), uploads, measure=True).angles
    assert torch.allclose(measured, play(method("psl", model), uploads).angles, rtol=1e-12)


def test_a_server_with_batch_norm_can_share_a_single_row():
    outcome = play(method("epsl", server_named("batch-norm"), phi=0.1), uploads_for("batch-norm"))
    assert sorted(outcome.replies) == [0, 1, 2, 3]
