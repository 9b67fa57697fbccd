"""The regulariser's derivative: u_i, and the products of second derivatives with it."""

import math

import oracle
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from gapsl.alignment import cosine_pull, exact_product, finite_product, finite_step

vectors = st.integers(2, 6).flatmap(
    lambda size: st.tuples(*[st.lists(st.floats(-3, 3), min_size=size, max_size=size)] * 2)
)


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


@given(vectors)
@settings(max_examples=100, deadline=None)
def test_the_cosine_and_its_derivative_are_those_of_autograd(pair):
    gradient, leader = doubles(*pair[0]), doubles(*pair[1])
    assume(min(gradient.norm(), leader.norm()) > 1e-2)
    found = cosine_pull(gradient, leader)
    assert found.cosine == pytest.approx(oracle.cosine(*pair), abs=1e-15)
    assume(1 - abs(found.cosine) > 1e-5)
    gradient.requires_grad_()
    cosine = gradient @ leader / (gradient.norm() * leader.norm())
    (expected,) = torch.autograd.grad(cosine, gradient)
    assert torch.allclose(found.direction, expected, rtol=1e-9, atol=1e-12)


@given(vectors, st.integers(-40, 40))
@settings(max_examples=60, deadline=None)
def test_the_length_of_the_leader_does_not_matter(pair, power):
    gradient, leader = doubles(*pair[0]), doubles(*pair[1])
    assume(min(gradient.norm(), leader.norm()) > 1e-2)
    plain, scaled = cosine_pull(gradient, leader), cosine_pull(gradient, leader * 2.0**power)
    assert scaled.cosine == pytest.approx(plain.cosine, abs=1e-15)
    assume(1 - abs(plain.cosine) > 1e-5)
    assert torch.allclose(scaled.direction, plain.direction, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("gradient", "leader"), [([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0]), ([0.0, 0.0], [0.0, 0.0])]
)
def test_a_zero_gradient_or_leader_pulls_nothing(gradient, leader):
    found = cosine_pull(doubles(*gradient), doubles(*leader))
    assert found.cosine == 0.0
    assert found.direction is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(st.integers(0, 1000), st.sampled_from([1, 2, 33, 1000]))
@settings(max_examples=30, deadline=None)
def test_where_the_gradient_is_the_leader_the_derivative_is_none(dtype, seed, size):
    gradient = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    assert cosine_pull(gradient, 4 * gradient).direction is None


@pytest.mark.parametrize(("gap", "aligned"), [(0.9e-6, True), (1.1e-6, False)])
def test_aligned_means_one_minus_cos_below_a_millionth(gap, aligned):
    angle = math.acos(1 - gap)
    found = cosine_pull(doubles(math.cos(angle), math.sin(angle)), doubles(1.0, 0.0))
    assert (found.direction is None) == aligned


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(st.integers(0, 1000), st.sampled_from([1, 2, 33, 1000]))
@settings(max_examples=30, deadline=None)
def test_where_the_gradient_opposes_the_leader_the_derivative_is_exactly_zero(dtype, seed, size):
    """|u_i| is 0 there; what rounding leaves of it has no direction, only a length of its own."""
    gradient = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    assert cosine_pull(gradient, -2 * gradient).direction is None


def test_the_gradient_and_the_leader_are_left_as_they_are():
    gradient, leader = doubles(1.0, 2.0), doubles(2.0, 1.0)
    cosine_pull(gradient, leader).direction.zero_()
    assert gradient.tolist() == [1.0, 2.0]
    assert leader.tolist() == [2.0, 1.0]


def tanh_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def inputs():
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def loss_of(model, activations):
    return nn.functional.cross_entropy(model(activations), torch.tensor([0, 1, 0, 1, 1]))


def test_exact_products_are_rows_of_the_full_hessian():
    model, activations = tanh_net(), inputs()
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    sizes = [p.numel() for p in model.parameters()]

    def loss(flat):
        pieces = torch.split(flat, [*sizes, activations.numel()])
        weights = {n: piece.view(shape) for n, piece, shape in zip(names, pieces[:-1], shapes, strict=True)}
        logits = torch.func.functional_call(model, weights, (pieces[-1].view_as(activations),))
        return nn.functional.cross_entropy(logits, torch.tensor([0, 1, 0, 1, 1]))

    point = torch.cat([*(p.detach().flatten() for p in model.parameters()), activations.flatten()])
    hessian = torch.autograd.functional.hessian(loss, point)
    total = sum(sizes)
    direction = torch.randn(total, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    leaf = activations.clone().requires_grad_()
    pieces = [d.view(s) for d, s in zip(torch.split(direction, sizes), shapes, strict=True)]
    on_weights, on_activations = exact_product(loss_of(model, leaf), list(model.parameters()), leaf, pieces)
    flat = torch.cat([w.flatten() for w in on_weights])
    assert torch.allclose(flat, hessian[:total, :total] @ direction, rtol=1e-10, atol=1e-13)
    assert torch.allclose(
        on_activations.flatten(), hessian[total:, :total] @ direction, rtol=1e-10, atol=1e-13
    )


def test_a_loss_linear_in_weights_and_activations_has_only_the_mixed_product():
    weight = doubles(1.0, 2.0).requires_grad_()
    activations = doubles(3.0, -1.0).requires_grad_()
    on_weights, mixed = exact_product(weight @ activations, [weight], activations, [doubles(0.5, 0.25)])
    assert on_weights[0].tolist() == [0.0, 0.0]
    assert mixed.tolist() == [0.5, 0.25]


def test_a_loss_without_curvature_gives_zeros():
    weight = doubles(1.0, 2.0).requires_grad_()
    activations = doubles(3.0, -1.0).requires_grad_()
    loss = weight.sum() + activations.sum()
    on_weights, mixed = exact_product(loss, [weight], activations, [doubles(0.5, 0.25)])
    assert not on_weights[0].any()
    assert not mixed.any()


def test_a_parameter_the_loss_does_not_use_has_a_zero_product():
    """g_i is a vector over all server parameters, and its entries here are zero like the first-order ones."""
    weight, idle = doubles(1.0, 2.0).requires_grad_(), doubles(7.0).requires_grad_()
    activations = doubles(3.0, -1.0).requires_grad_()
    loss = (weight * activations).sum().tanh()
    on_weights, mixed = exact_product(loss, [weight, idle], activations, [doubles(0.5, 0.25), doubles(1.0)])
    assert not on_weights[1].any()
    assert mixed.any()


def test_a_finite_product_is_exact_on_a_quadratic():
    matrix = doubles([2.0, 1.0], [1.0, 3.0])
    weights = doubles(1.0, -2.0)
    direction = doubles(0.3, 0.7)
    on_weights, mixed = finite_product(
        lambda offset: (matrix @ (weights + offset), 5 * (weights + offset)),
        matrix @ weights, 5 * weights, direction, 0.25,
    )  # fmt: skip
    assert torch.allclose(on_weights, matrix @ direction, rtol=1e-14)
    assert torch.allclose(mixed, 5 * direction, rtol=1e-14)


def test_the_finite_step_moves_the_weights_by_its_length_along_the_direction():
    asked = []

    def gradients_at(offset):
        asked.append(offset)
        return torch.zeros_like(offset), torch.zeros(1)

    finite_product(gradients_at, torch.zeros(2), torch.zeros(1), torch.tensor([30.0, 40.0]), 0.5)
    assert len(asked) == 1  # one extra pass, no more
    assert torch.allclose(asked[0], torch.tensor([0.3, 0.4]))


def test_a_finite_product_along_nothing_is_nothing():
    def gradients_at(offset):
        raise AssertionError("no pass is due")

    on_weights, mixed = finite_product(gradients_at, torch.ones(2), torch.ones(3), torch.zeros(2), 0.1)
    assert not on_weights.any()
    assert not mixed.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_finite_step_is_scaled_to_the_weights(dtype):
    small, large = torch.full((4,), 0.5, dtype=dtype), torch.full((4,), 500.0, dtype=dtype)
    assert finite_step(large) / finite_step(small) == pytest.approx(1001 / 2, rel=1e-6)
    # Large enough to change every weight that is as large as the weights are together.
    assert finite_step(large) > 100 * torch.finfo(dtype).eps * large.norm()
