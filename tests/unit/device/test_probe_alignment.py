"""Probe alignment: the change of the weights that moves outputs as wanted, found by solving for it."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from gapsl.device.probe_alignment import FARTHEST, align, solve_for_outputs
from gapsl.models.half import Half


def half_of(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(*(layers or (nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))).double()
    return Half(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), lambda t: 0.1)


def inputs_and_way(rows=3, outputs=2):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return inputs, 0.01 * torch.randn(rows, outputs, generator=generator, dtype=torch.float64)


def jacobian(half, inputs):
    """Return the matrix of the derivatives of all outputs by all weights."""
    names = [name for name, _ in half.model.named_parameters()]

    def outputs(weights):
        return functional_call(
            half.model, dict(zip(names, half.views(weights), strict=True)), (inputs,)
        ).flatten()

    return jacrev(outputs)(half.flat())


def test_with_enough_steps_it_is_the_smallest_of_all_changes_that_close_the_difference():
    half, (inputs, way) = half_of(), inputs_and_way()
    expected = torch.linalg.pinv(jacobian(half, inputs)) @ way.flatten()
    assert torch.allclose(solve_for_outputs(half, inputs, way, 12), expected, rtol=1e-4, atol=1e-8)


def test_every_step_brings_the_outputs_nearer():
    half, (inputs, way) = half_of(), inputs_and_way()
    matrix = jacobian(half, inputs)
    left = [
        (matrix @ solve_for_outputs(half, inputs, way, steps) - way.flatten()).norm().item()
        for steps in range(6)
    ]
    assert left[0] == pytest.approx(way.norm().item())
    assert all(later < 0.95 * earlier for earlier, later in itertools.pairwise(left))


def test_outputs_go_the_way_and_nothing_else_of_the_half_changes():
    half, (inputs, way) = half_of(), inputs_and_way()
    half.model(inputs).sum().backward()
    half.step(1)  # so that there is a momentum
    half.model(inputs).sum().backward()
    gradients = [parameter.grad.clone() for parameter in half.parameters]
    state = copy.deepcopy(half.optimizer.state_dict())
    before = half.model(inputs).detach()
    align(half, inputs, way, 12)
    assert (half.model(inputs) - before - way).norm() < 0.01 * way.norm(), "the rest is of second order"
    assert all(torch.equal(p.grad, g) for p, g in zip(half.parameters, gradients, strict=True))
    after = half.optimizer.state_dict()["state"]
    assert all(torch.equal(after[i]["momentum_buffer"], state["state"][i]["momentum_buffer"]) for i in after)


def test_a_half_that_is_there_already_stays_as_it_is_to_the_bit():
    half, (inputs, way) = half_of(), inputs_and_way()
    before = half.flat()
    align(half, inputs, torch.zeros_like(way), 4)
    assert torch.equal(half.flat(), before)


def test_a_way_that_no_weight_leads_to_changes_nothing():
    half, (inputs, _) = half_of(nn.Linear(3, 2), nn.ReLU()), inputs_and_way()
    with torch.no_grad():
        half.model[0].bias.fill_(-100.0)  # nothing gets through
    assert not solve_for_outputs(half, inputs, torch.ones(3, 2, dtype=torch.float64), 4).any()


def test_weights_that_do_not_train_do_not_move():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[0].requires_grad_(False)
    half = Half(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), lambda t: 0.1)
    inputs, way = inputs_and_way()
    fixed, outputs = model[0].weight.clone(), model(inputs).detach()
    align(half, inputs, way, 8)
    assert torch.equal(model[0].weight, fixed)
    assert (model(inputs) - outputs - way).norm() < way.norm()


def test_dropout_makes_no_difference_and_draws_nothing():
    half, (inputs, way) = half_of(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), inputs_and_way()
    half.model.train()
    state = torch.get_rng_state()
    first, second = (solve_for_outputs(half, inputs, way, 4) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_half_whose_outputs_hardly_move_is_not_thrown_far():
    half, (inputs, _) = half_of(nn.Linear(3, 2), nn.Tanh()), inputs_and_way()
    with torch.no_grad():
        half.model[0].bias.fill_(12.0)  # where the outputs are flat
    before = half.flat()
    align(half, inputs, torch.ones(3, 2, dtype=torch.float64), 4)
    assert (half.flat() - before).norm() == pytest.approx(FARTHEST * before.norm().item())


@pytest.mark.parametrize("trouble", [float("inf"), float("nan")])
def test_a_way_that_is_not_finite_is_not_gone(trouble):
    half, (inputs, way) = half_of(), inputs_and_way()
    before = half.flat()
    align(half, inputs, torch.full_like(way, trouble), 4)
    assert torch.equal(half.flat(), before)
