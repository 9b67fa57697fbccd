"""The regulariser is second order: a GAPSL step is the derivative of the round's scalar loss.

The loss is written here as SPEC writes it, with the selection and the leader frozen, and differentiated
numerically in float64; the derivative is read off a whole step of the method: plain SGD of rate 1 moves
the server by minus its gradient, and the replies are the rest of it.
"""

import math

import pytest
import torch
from tiny import (
    SERVERS,
    buffers,
    chosen_round,
    flat,
    method,
    mlp,
    play,
    server_named,
    uploads_for,
    weights,
)
from torch import nn

from gapsl.methods import ServerModel, Upload

LAMBDA = 0.8
SMOOTH = [name for name in SERVERS if name != "convolution-relu"]
BOTH = [(reduction, whose) for reduction in ("mean", "samples", "sum") for whose in ("follow", "own")]


def gapsl(model, penalty="exact", **settings):
    settings = {"k_min": 0.5, "k_max": 0.5, "eta": -0.6, "lambda": LAMBDA, **settings}
    return method("gapsl", model, penalty=penalty, **settings)


def set_weights(model, vector):
    with torch.no_grad():
        nn.utils.vector_to_parameters(vector, list(model.parameters()))


class RoundLoss:
    """The round's scalar loss as a function of w_s and of every a_i, from SPEC's sentences."""

    def __init__(self, strategy, uploads, selection, reduction, weight=LAMBDA):
        self.passes: ServerModel = strategy.server
        self.uploads, self.weight = uploads, weight
        self.kept = selection.kept
        amounts = {i: strategy.run.devices[i].samples for i in self.kept}
        shares = {i: amount / sum(amounts.values()) for i, amount in amounts.items()}
        equal = {"mean": 1 / len(self.kept), "sum": 1.0}
        self.shares = shares if reduction == "samples" else dict.fromkeys(self.kept, equal.get(reduction))
        self.point = flat(self.passes.part.model).clone()
        members = [self.passes.first_order(uploads[i]).gradient.clone() for i in selection.leader]
        self.leader = sum(members) / len(members)

    def part(self, device, vector, activations):
        set_weights(self.passes.part.model, vector)
        upload = self.uploads[device]
        found = self.passes.first_order(Upload(device, upload.round, upload.turn, activations, upload.labels))
        set_weights(self.passes.part.model, self.point)
        gradient = found.gradient
        cosine = float(gradient @ self.leader / (gradient.norm() * self.leader.norm()))
        return found.loss + self.weight * (1 - cosine)

    def __call__(self, vector=None, moved=None):
        vector = self.point if vector is None else vector
        moved = moved or {}
        return sum(
            share * self.part(i, vector, moved.get(i, self.uploads[i].activations))
            for i, share in self.shares.items()
        )

    def slope_of_weights(self, direction, step):
        ahead, behind = self(self.point + step * direction), self(self.point - step * direction)
        return (ahead - behind) / (2 * step)

    def slope_of_activations(self, device, direction, step):
        start = self.uploads[device].activations
        ahead = self(moved={device: start + step * direction})
        return (ahead - self(moved={device: start - step * direction})) / (2 * step)


def directions_like(tensor, count):
    generator = torch.Generator().manual_seed(5)
    for _ in range(count):
        direction = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        yield direction / direction.norm()


def check_derivative(name, reduction="mean", device_gradient="follow"):
    # A kink within the step would be noticed: ReLU gets a step that meets none.
    step = 1e-7 if "relu" in name else 2e-5
    near = 1e-6 if "relu" in name else 1e-8
    model, uploads = server_named(name), uploads_for(name)
    strategy = gapsl(model, reduction=reduction, device_gradient=device_gradient)
    before = weights(strategy)
    outcome = play(strategy, uploads)
    moved = before - weights(strategy)
    kept = list(outcome.selection.kept)
    assert 2 <= len(kept) < len(uploads)  # or the test would not see the selection

    loss = RoundLoss(gapsl(model), uploads, outcome.selection, reduction)
    for direction in directions_like(before, 5):
        assert float(moved @ direction) == pytest.approx(loss.slope_of_weights(direction, step), abs=near)
    for device in kept:
        unscaled = 1 / loss.shares[device] if device_gradient == "own" else 1
        reply = outcome.replies[device]
        assert reply.step
        for direction in directions_like(reply.gradient, 3):
            slope = unscaled * loss.slope_of_activations(device, direction, step)
            assert float((reply.gradient * direction).sum()) == pytest.approx(slope, abs=near)
    for device in {u.device for u in uploads} - set(kept):
        assert not outcome.replies[device].gradient.any()
        assert not outcome.replies[device].step


@pytest.mark.parametrize("name", SERVERS)
def test_exact_is_the_numerical_derivative_of_the_round_s_loss(name):
    check_derivative(name)


@pytest.mark.parametrize(("reduction", "device_gradient"), BOTH)
def test_exact_is_the_numerical_derivative_under_every_reduction(reduction, device_gradient):
    check_derivative("tanh", reduction, device_gradient)


def penalty_part(name, mode, dtype=torch.float64):
    """What the regulariser adds to the server's gradient and to each reply."""
    model, uploads = server_named(name, dtype), uploads_for(name, dtype=dtype)
    with_it, without = gapsl(model, mode), gapsl(model, "none")
    replies = [play(strategy, uploads).replies for strategy in (with_it, without)]
    on_activations = [replies[0][u.device].gradient - replies[1][u.device].gradient for u in uploads]
    return weights(without) - weights(with_it), torch.cat(on_activations)


@pytest.mark.parametrize("name", SERVERS)
def test_the_regulariser_moves_the_weights_and_reaches_the_devices(name):
    """With g_i detached both would be zero: the classic mistake."""
    on_weights, on_activations = penalty_part(name, "exact")
    assert on_weights.norm() > 1e-2 * LAMBDA
    assert on_activations.norm() > 1e-2 * LAMBDA


@pytest.mark.parametrize("name", SMOOTH)
def test_finite_is_exact_on_smooth_models_in_float64(name):
    for exact, finite in zip(penalty_part(name, "exact"), penalty_part(name, "finite"), strict=True):
        assert torch.linalg.vector_norm(finite - exact) < 4e-6 * torch.linalg.vector_norm(exact)


@pytest.mark.parametrize("name", SMOOTH)
def test_finite_points_where_exact_does_in_float32(name):
    model, uploads = server_named(name, torch.float32), uploads_for(name, dtype=torch.float32)
    passes = gapsl(model).server
    contributions = [passes.first_order(upload) for upload in uploads]
    leader = sum(c.gradient for c in contributions[:2]) / 2
    for contribution in contributions:
        _, exact = passes.penalty(contribution, leader, "exact")
        _, finite = passes.penalty(contribution, leader, "finite")
        for a, b in zip(exact, finite, strict=True):
            assert nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.99


@pytest.mark.parametrize("mode", ["exact", "finite"])
@pytest.mark.parametrize("name", ["dropout", "attention-dropout", "batch-norm"])
def test_a_further_pass_is_the_first_one_again(name, mode):
    """With a fresh mask the product would be pure noise; two rounds from one start would differ too."""
    first, second = penalty_part(name, mode), penalty_part(name, mode)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    model, uploads = server_named(name), uploads_for(name)
    passes = gapsl(model).server
    once, again = passes.first_order(uploads[0]), passes.first_order(uploads[0])
    assert once.loss == again.loss
    assert torch.equal(once.gradient, again.gradient)


def test_dropout_masks_differ_between_devices_rounds_and_turns():
    passes = gapsl(server_named("dropout")).server
    plain = uploads_for("dropout")[0]
    losses = {
        passes.first_order(Upload(device, round, turn, plain.activations, plain.labels)).loss
        for device in (0, 1)
        for round in (1, 2)
        for turn in (0, 1)
    }
    assert len(losses) == 8


@pytest.mark.parametrize("mode", ["exact", "finite", "none"])
def test_a_further_pass_leaves_weights_and_buffers_as_they_were(mode):
    model, uploads = server_named("batch-norm"), uploads_for("batch-norm")
    strategy = gapsl(model)
    before, running = weights(strategy), buffers(strategy)
    contributions = [strategy.server.first_order(upload) for upload in uploads]
    for contribution in contributions:
        strategy.server.penalty(contribution, contributions[0].gradient, mode)
    assert torch.equal(weights(strategy), before)
    assert torch.equal(buffers(strategy), running)


@pytest.mark.parametrize("name", ["tanh", "dropout"])
def test_none_reports_the_penalty_and_differentiates_nothing(name):
    model, uploads = server_named(name), uploads_for(name)
    selecting, plain = gapsl(model, "none"), gapsl(model, **{"lambda": 0.0})
    outcome, without = play(selecting, uploads), play(plain, uploads)
    assert torch.equal(weights(selecting), weights(plain))
    for device, reply in outcome.replies.items():
        assert torch.equal(reply.gradient, without.replies[device].gradient)
    reported = outcome.selection.penalty
    assert tuple(sorted(reported)) == outcome.selection.kept
    angles = outcome.selection.lead_angles
    for device, value in reported.items():
        assert value == pytest.approx(LAMBDA * (1 - math.cos(angles[device])), rel=1e-12)
    assert any(value > 0.01 for value in reported.values())


@pytest.mark.parametrize("mode", ["exact", "finite"])
def test_the_penalty_grows_in_proportion_to_lambda(mode):
    model, uploads = server_named("tanh"), uploads_for("tanh")
    found = []
    for weight in (0.0, 0.5, 1.0):
        strategy = gapsl(model, mode, **{"lambda": weight})
        play(strategy, uploads)
        found.append(weights(strategy))
    assert torch.allclose(found[2] - found[0], 2 * (found[1] - found[0]), rtol=1e-9, atol=1e-14)


def test_first_order_is_plain_autograd():
    model, upload = server_named("tanh"), uploads_for("tanh")[0]
    found = gapsl(model).server.first_order(upload)
    activations = upload.activations.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(activations), upload.labels)
    expected = torch.autograd.grad(loss, [*model.parameters(), activations])
    assert found.loss == loss.item()
    assert torch.equal(found.gradient, torch.cat([g.flatten() for g in expected[:-1]]))
    assert torch.equal(found.activation_gradient, expected[-1])


@pytest.mark.parametrize("mode", ["exact", "finite"])
def test_a_server_parameter_that_no_loss_uses_stays_where_it_is(mode):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = mlp(), nn.Linear(2, 2)

        def forward(self, activations):
            return self.used(activations)

    torch.manual_seed(0)
    model = Idle().double()
    strategy = gapsl(model, mode)
    play(strategy, uploads_for("tanh"))
    assert torch.equal(flat(strategy.server.part.model.idle), flat(model.idle))
    assert not torch.equal(flat(strategy.server.part.model.used), flat(model.used))


# In the world of chosen gradients u_i itself can be read: z_i = (w - lambda * u_i) / n.


def test_the_mixed_term_is_u_in_closed_form():
    rows = [[2.0, 0.0], [0.0, 1.0]]
    settings = {"k_min": 0.5, "k_max": 0.5, "exclusion": "none", "lambda": 0.5}
    outcome, _ = chosen_round("gapsl", rows, **settings)
    assert outcome.selection.leader == (0,)
    assert outcome.replies[0].gradient.tolist() == [[0.5, 0.5]]  # the leader itself: aligned
    # g = (0, 1) is at a right angle to the leader (1, 0): u = (1, 0), and w = (1, 1).
    assert outcome.replies[1].gradient.flatten().tolist() == pytest.approx([0.25, 0.5], rel=1e-15)


@pytest.mark.parametrize("mode", ["exact", "finite"])
@pytest.mark.parametrize(
    ("rows", "device", "why"),
    [
        ([[1.0, 0.0], [1.0, 1e-3], [0.0, 1.0]], 0, "1 - cos below 1e-6"),
        ([[1.0, 0.0], [0.0, 0.0], [1.0, 0.5]], 1, "a zero gradient"),
        ([[1.0, 0.0], [-1.0, 0.0]], 0, "a zero leader"),
        ([[3.0, 4.0]], 0, "one device"),
        ([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]], 2, "identical gradients"),
        ([[1.0, 2.0], [3.0, 6.0], [-1.0, -2.0]], 2, "opposite to the leader: |u| is 0"),
    ],
)
def test_where_it_has_no_direction_the_penalty_s_derivative_is_exactly_zero(rows, device, why, mode):
    """Compared to the bit with the same round at lambda = 0."""
    ratio = 1.0 if "leader" in why and "zero" in why else 0.6
    settings = {"k_min": ratio, "k_max": ratio, "exclusion": "none", "penalty": mode}
    outcome, _ = chosen_round("gapsl", rows, **settings, **{"lambda": 100.0})
    plain, _ = chosen_round("gapsl", rows, **settings, **{"lambda": 0.0})
    assert torch.equal(outcome.replies[device].gradient, plain.replies[device].gradient)
