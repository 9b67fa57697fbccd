"""BatchNorm on the server: each device's own batch, running buffers moved once after the round."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny import PARALLEL, method, mlp, play, server_named, uploads_for, weights
from torch import nn

from gapsl.methods.batch_norm import RunningStatistics

SETTINGS = {name: ({"lambda": 2.0} if name.startswith("gapsl") else {}) for name in PARALLEL}


def layer_of(strategy):
    (layer,) = [m for m in strategy.server.part.model.modules() if isinstance(m, nn.BatchNorm1d)]
    return layer


def expected_running(model, uploads):
    """The layer after one step towards the round's mean and variance, those between devices included."""
    model = copy.deepcopy(model).train()
    (layer,) = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    untouched = copy.deepcopy(layer)
    inputs = []
    layer.register_forward_hook(lambda module, given, result: inputs.append(given[0]))
    with torch.no_grad():
        for upload in uploads:
            model(upload.activations)
        untouched.num_batches_tracked += 1
        momentum = untouched.momentum or 1 / untouched.num_batches_tracked
        whole = torch.cat([batch.mean(dim=0, keepdim=True) for batch in inputs])
        within = sum(batch.var(dim=0) for batch in inputs) / len(inputs)
        between = ((whole - whole.mean(dim=0)) ** 2).mean(dim=0)
        untouched.running_mean.lerp_(whole.mean(dim=0), float(momentum))
        untouched.running_var.lerp_(within + between, float(momentum))
    return untouched


def fingerprint(layer):
    return layer.running_mean, layer.running_var, layer.num_batches_tracked


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", PARALLEL)
def test_running_buffers_move_once_by_all_devices_batches_together(name, reverse):
    model, uploads = server_named("batch-norm"), uploads_for("batch-norm")
    strategy = method(name, model, **SETTINGS[name])
    play(strategy, uploads[::-1] if reverse else uploads)
    for found, wanted in zip(
        fingerprint(layer_of(strategy)), fingerprint(expected_running(model, uploads)), strict=True
    ):
        assert torch.allclose(found, wanted, rtol=1e-13)


def test_what_differs_between_devices_counts_in_the_variance():
    model = server_named("batch-norm")
    uploads = uploads_for("batch-norm")
    shifted = [replace(u, activations=u.activations + 10 * u.device) for u in uploads]
    together, apart = method("psl", model), method("psl", model)
    play(together, uploads)
    play(apart, shifted)
    assert (layer_of(apart).running_var > layer_of(together).running_var).all()


def test_one_device_alone_moves_them_as_torch_does():
    model, upload = server_named("batch-norm"), uploads_for("batch-norm")[0]
    strategy = method("psl", model)
    play(strategy, [upload])
    with torch.no_grad():
        model.train()(upload.activations)
    (layer,) = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    for found, wanted in zip(fingerprint(layer_of(strategy)), fingerprint(layer), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("penalty", ["exact", "finite", "none"])
def test_further_passes_do_not_touch_them(penalty):
    model, uploads = server_named("batch-norm"), uploads_for("batch-norm")
    settings = {"exclusion": "none", "lambda": 1.0, "penalty": penalty}
    gapsl, psl = method("gapsl", model, **settings), method("psl", model)
    play(gapsl, uploads)
    play(psl, uploads)
    for found, wanted in zip(fingerprint(layer_of(gapsl)), fingerprint(layer_of(psl)), strict=True):
        assert torch.equal(found, wanted)


def test_measuring_angles_does_not_touch_them():
    model, uploads = server_named("batch-norm"), uploads_for("batch-norm")
    strategy = method("sfl-v2", model)
    before = copy.deepcopy(layer_of(strategy).state_dict())
    strategy.measure_angles(uploads)
    after = layer_of(strategy).state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_device_s_gradient_depends_on_its_own_batch_alone():
    uploads = uploads_for("batch-norm")
    alone = method("psl", server_named("batch-norm")).server.first_order(uploads[2])
    passes = method("psl", server_named("batch-norm")).server
    passes.first_order(uploads[0])
    among = passes.first_order(uploads[2])
    assert alone.loss == among.loss
    assert torch.equal(alone.gradient, among.gradient)


def test_statistics_of_the_running_buffers_do_not_enter_training():
    model, other = server_named("batch-norm"), server_named("batch-norm")
    for module in other.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean += 3
    one, two = method("psl", model), method("psl", other)
    play(one, uploads_for("batch-norm"))
    play(two, uploads_for("batch-norm"))
    assert torch.equal(weights(one), weights(two))


@pytest.mark.parametrize("momentum", [0.1, 0.37, None])
def test_they_move_once_per_round_at_any_momentum(momentum):
    model = mlp(nn.BatchNorm1d(7, momentum=momentum)).double()
    strategy = method("psl", model)
    for t in (1, 2):
        uploads = uploads_for("batch-norm", seed=t, round=t)
        model.load_state_dict(strategy.server.part.model.state_dict())
        play(strategy, uploads, round=t)
        for found, wanted in zip(
            fingerprint(layer_of(strategy)), fingerprint(expected_running(model, uploads)), strict=True
        ):
            assert torch.allclose(found, wanted, rtol=1e-13)


def test_a_failing_forward_leaves_the_layers_as_they_were():
    model = server_named("batch-norm")
    (layer,) = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(RuntimeError), RunningStatistics(model).captured():
        model(torch.zeros(4, 99, dtype=torch.float64))
    assert layer.momentum == 0.1
    assert all(torch.equal(value, layer.state_dict()[name]) for name, value in before.items())


def test_a_layer_without_running_buffers_is_left_alone():
    torch.manual_seed(0)
    model = mlp(nn.BatchNorm1d(7, track_running_stats=False)).double()
    strategy = method("gapsl", model, **{"lambda": 1.0})
    play(strategy, uploads_for("batch-norm"))
    assert not torch.equal(weights(strategy), torch.cat([p.flatten() for p in model.parameters()]))
