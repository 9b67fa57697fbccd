"""Probe alignment: the change of the weights that moves outputs as wanted, found by solving for it."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from gapsl.device.probe_alignment import FARTHEST, align, solve_for_outputs
from gapsl.models.part import ModelPart


def part_of(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(*(layers or (nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))).double()
    return ModelPart(
        model, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), lambda t: 0.1
    )


def inputs_and_way(rows=3, outputs=2):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return inputs, 0.01 * torch.randn(rows, outputs, generator=generator, dtype=torch.float64)


def jacobian(part, inputs):
    """Return the matrix of the derivatives of all outputs by all weights."""
    names = [name for name, _ in part.model.named_parameters()]

    def outputs(weights):
        return functional_call(
            part.model, dict(zip(names, part.views(weights), strict=True)), (inputs,)
        ).flatten()

    return jacrev(outputs)(part.flat())


def test_with_enough_steps_it_is_the_smallest_of_all_changes_that_close_the_difference():
    part, (inputs, way) = part_of(), inputs_and_way()
    expected = torch.linalg.pinv(jacobian(part, inputs)) @ way.flatten()
    assert torch.allclose(solve_for_outputs(part, inputs, way, 12), expected, rtol=1e-4, atol=1e-8)


def test_every_step_brings_the_outputs_nearer():
    part, (inputs, way) = part_of(), inputs_and_way()
    matrix = jacobian(part, inputs)
    left = [
        (matrix @ solve_for_outputs(part, inputs, way, steps) - way.flatten()).norm().item()
        for steps in range(6)
    ]
    assert left[0] == pytest.approx(way.norm().item())
    assert all(later < 0.95 * earlier for earlier, later in itertools.pairwise(left))


def test_outputs_go_the_way_and_nothing_else_of_the_part_changes():
    part, (inputs, way) = part_of(), inputs_and_way()
    part.model(inputs).sum().backward()
    part.step(1)  # so that there is a momentum
    part.model(inputs).sum().backward()
    gradients = [parameter.grad.clone() for parameter in part.parameters]
    state = copy.deepcopy(part.optimizer.state_dict())
    before = part.model(inputs).detach()
    align(part, inputs, way, 12)
    assert (part.model(inputs) - before - way).norm() < 0.01 * way.norm(), "the rest is of second order"
    assert all(torch.equal(p.grad, g) for p, g in zip(part.parameters, gradients, strict=True))
    after = part.optimizer.state_dict()["state"]
    assert all(torch.equal(after[i]["momentum_buffer"], state["state"][i]["momentum_buffer"]) for i in after)


def test_a_part_that_is_there_already_stays_as_it_is_to_the_bit():
    part, (inputs, way) = part_of(), inputs_and_way()
    before = part.flat()
    align(part, inputs, torch.zeros_like(way), 4)
    assert torch.equal(part.flat(), before)


def test_a_way_that_no_weight_leads_to_changes_nothing():
    part, (inputs, _) = part_of(nn.Linear(3, 2), nn.ReLU()), inputs_and_way()
    with torch.no_grad():
        part.model[0].bias.fill_(-100.0)  # nothing gets through
    assert not solve_for_outputs(part, inputs, torch.ones(3, 2, dtype=torch.float64), 4).any()


def test_weights_that_do_not_train_do_not_move():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[0].requires_grad_(False)
    part = ModelPart(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), lambda t: 0.1)
    inputs, way = inputs_and_way()
    fixed, outputs = model[0].weight.clone(), model(inputs).detach()
    align(part, inputs, way, 8)
    assert torch.equal(model[0].weight, fixed)
    assert (model(inputs) - outputs - way).norm() < way.norm()


def test_dropout_makes_no_difference_and_draws_nothing():
    part, (inputs, way) = part_of(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), inputs_and_way()
    part.model.train()
    state = torch.get_rng_state()
    first, second = (solve_for_outputs(part, inputs, way, 4) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_part_whose_outputs_hardly_move_is_not_thrown_far():
    part, (inputs, _) = part_of(nn.Linear(3, 2), nn.Tanh()), inputs_and_way()
    with torch.no_grad():
        part.model[0].bias.fill_(12.0)  # where the outputs are flat
    before = part.flat()
    align(part, inputs, torch.ones(3, 2, dtype=torch.float64), 4)
    assert (part.flat() - before).norm() == pytest.approx(FARTHEST * before.norm().item())


@pytest.mark.parametrize("trouble", [float("inf"), float("nan")])
def test_a_way_that_is_not_finite_is_not_gone(trouble):
    part, (inputs, way) = part_of(), inputs_and_way()
    before = part.flat()
    align(part, inputs, torch.full_like(way, trouble), 4)
    assert torch.equal(part.flat(), before)
