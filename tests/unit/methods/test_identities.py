"""Identities between methods that SPEC promises for one exchange, to the bit where it says so."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import (
    AT_ONCE,
    SERVERS,
    buffers,
    flat,
    method,
    play,
    same_outcome,
    server_named,
    sgd,
    uploads_for,
    weights,
)

from gapsl.methods import Exchange, Upload

REDUCTIONS = ["mean", "samples", "sum"]


@given(
    ks=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
    eta=st.floats(-2, 2),
    seed=st.integers(0, 1000),
    penalty=st.sampled_from(["exact", "finite", "none"]),
    reduction=st.sampled_from(REDUCTIONS),
    device_gradient=st.sampled_from(["follow", "own"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    server=st.sampled_from(["tanh", "batch-norm", "dropout", "convolution-relu"]),
)
@settings(max_examples=30, deadline=None)
def test_gapsl_that_excludes_nobody_and_regularises_nothing_is_psl_to_the_bit(
    ks, eta, seed, penalty, reduction, device_gradient, dtype, server
):
    model = server_named(server, dtype)
    common = {
        "reduction": reduction,
        "device_gradient": device_gradient,
        "optimizer": sgd(0.1, momentum=0.9),
        "lr": 0.1,
    }
    plain = {"k_min": min(ks), "k_max": max(ks), "eta": eta, "penalty": penalty, "exclusion": "none"}
    gapsl, psl = method("gapsl", model, **common, **plain, **{"lambda": 0.0}), method("psl", model, **common)
    for t in (1, 2):
        uploads = uploads_for(server, dtype=dtype, seed=seed + t, round=t)
        ours, theirs = play(gapsl, uploads, round=t), play(psl, uploads, round=t)
        for device, reply in theirs.replies.items():
            assert torch.equal(ours.replies[device].gradient, reply.gradient)
            assert ours.replies[device].step
    assert torch.equal(weights(gapsl), weights(psl))
    assert torch.equal(buffers(gapsl), buffers(psl))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("hidden", ["mean", "per-device"])
@pytest.mark.parametrize("server", ["tanh", "batch-norm", "dropout"])
def test_epsl_that_shares_nothing_is_psl_to_the_bit(server, hidden, reduction):
    model, uploads = server_named(server, torch.float32), uploads_for(server, dtype=torch.float32)
    epsl = method("epsl", model, reduction=reduction, phi=0.0, hidden=hidden)
    psl = method("psl", model, reduction=reduction)
    same_outcome(play(epsl, uploads), play(psl, uploads))
    assert torch.equal(weights(epsl), weights(psl))


def alike(uploads):
    """Every device sends what the first does."""
    first = uploads[0]
    return [Upload(u.device, u.round, u.turn, first.activations, first.labels) for u in uploads]


@pytest.mark.parametrize("device_gradient", ["follow", "own"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("hidden", ["mean", "per-device"])
@pytest.mark.parametrize("server", ["tanh", "convolution-relu", "layer-norm", "attention", "batch-norm"])
@pytest.mark.parametrize("phi", [0.01, 0.5, 1.0])
def test_epsl_is_psl_where_all_devices_send_the_same(phi, server, hidden, reduction, device_gradient):
    model, uploads = server_named(server), alike(uploads_for(server))
    common = {"reduction": reduction, "device_gradient": device_gradient}
    epsl, psl = method("epsl", model, phi=phi, hidden=hidden, **common), method("psl", model, **common)
    ours, theirs = play(epsl, uploads), play(psl, uploads)
    assert torch.allclose(weights(epsl), weights(psl), rtol=1e-12, atol=1e-14)
    assert torch.allclose(buffers(epsl), buffers(psl), rtol=1e-12, atol=1e-14)
    for device, reply in theirs.replies.items():
        assert torch.allclose(ours.replies[device].gradient, reply.gradient, rtol=1e-11, atol=1e-14)
    assert ours.losses == theirs.losses


@pytest.mark.parametrize(("server", "measure"), [("batch-norm", True), ("dropout", False)])
@pytest.mark.parametrize("name", AT_ONCE)
@given(order=st.permutations(range(4)))
@settings(max_examples=4, deadline=None)
def test_the_order_in_which_uploads_arrive_changes_no_bit(name, server, measure, order):
    model = server_named(server, torch.float32)
    common = {"optimizer": sgd(0.5, momentum=0.9), "lr": 0.5}
    sorted_, shuffled = method(name, model, **common), method(name, model, **common)
    for t in (1, 2):
        uploads = uploads_for(server, dtype=torch.float32, seed=t, round=t)
        one = play(sorted_, uploads, round=t, measure=measure)
        other = play(shuffled, [uploads[i] for i in order], round=t, measure=measure)
        same_outcome(one, other)
    assert torch.equal(weights(sorted_), weights(shuffled))
    assert torch.equal(buffers(sorted_), buffers(shuffled))


def test_psl_is_the_sum_in_ascending_id_over_one_pass_a_device():
    """Written out: a gradient a device, added one by one, then the division."""
    model, uploads = server_named("tanh", torch.float32), uploads_for("tanh", dtype=torch.float32)
    psl = method("psl", model, optimizer=sgd(0.3), lr=0.3)
    outcome = play(psl, uploads)
    total, replies = None, {}
    for upload in uploads:
        activations = upload.activations.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(activations), upload.labels)
        *gradients, replies[upload.device] = torch.autograd.grad(loss, [*model.parameters(), activations])
        own = torch.cat([g.flatten() for g in gradients])
        total = own if total is None else total + own
    # SGD adds with alpha, in one rounding.
    assert torch.equal(weights(psl), flat(model).add(total / 4, alpha=-0.3))
    for device, gradient in replies.items():
        assert torch.equal(outcome.replies[device].gradient, gradient / 4)


@pytest.mark.parametrize("name", ["sfl", "sfl-v2", "vanilla"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_methods_without_a_reduction_over_devices_ignore_it(name, reduction):
    model, uploads = server_named("tanh"), uploads_for("tanh", devices=2)
    plain = method(name, model, devices=2)
    other = method(name, model, devices=2, reduction=reduction, device_gradient="own")
    exchanges = [(0, 1)] if name == "sfl" else [(0,), (1,)]  # the others take one device after another
    for devices in exchanges:
        sent = [uploads[device] for device in devices]
        replies = [s.step(1, Exchange(devices), sent).replies for s in (plain, other)]
        for device in devices:
            assert torch.equal(*(found[device].gradient for found in replies))
    assert torch.equal(weights(plain), weights(other))


@pytest.mark.parametrize("server", SERVERS)
def test_with_one_device_every_method_of_one_server_is_psl(server):
    model, uploads = server_named(server, torch.float32), uploads_for(server, devices=1, dtype=torch.float32)
    psl = method("psl", model, devices=1)
    expected = play(psl, uploads)
    for name in AT_ONCE:
        if name in ("frozen", "epsl"):  # frozen does not reply; EPSL sums rows in another order
            continue
        strategy = method(name, model, devices=1, **({"lambda": 5.0} if name.startswith("gapsl") else {}))
        outcome = play(strategy, uploads)
        assert torch.equal(weights(strategy), weights(psl)), name
        assert torch.equal(outcome.replies[0].gradient, expected.replies[0].gradient), name
        assert torch.equal(buffers(strategy), buffers(psl)), name
