"""Probe alignment on the device: the client-side model goes to what its leaders make of the probes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import functional_call

from gapsl.alignment import finite_step
from gapsl.models.part import ModelPart, all_finite

FARTHEST = 0.1  # of the length of the weights, in one round
TINY = 1e-30


def learn_and_align(part: ModelPart, sent: Tensor, gradient: Tensor, probes: Tensor, steps: int) -> None:
    """Back-propagate the gradient of the batch's rows, and align where the last rows, the probes', say.

    Both are of the weights as they were when the activations were sent.
    """
    own = len(sent) - len(probes)
    torch.autograd.backward(sent, torch.cat([gradient[:own], torch.zeros_like(gradient[own:])]))
    align(part, probes, -gradient[own:], steps)


def align(part: ModelPart, inputs: Tensor, wanted: Tensor, steps: int) -> None:
    """Change the weights so that the outputs for these inputs change as wanted, as far as steps bring them.

    A pull in the gradient can be no stronger than the direction that it moves most allows, and leaves the
    others behind. So the change is found by solving for it: of all changes that, to first order, bring the
    outputs where they belong, conjugate gradients find the smallest, and are stopped after some steps. It
    takes a backward and a forward of these few inputs a step, no learning rate, and nothing from the
    optimizer.
    """
    change = solve_for_outputs(part, inputs, wanted, steps)
    if not all_finite(change):  # a model that has diverged is the loss's matter
        return
    # Beyond that, what holds to first order says nothing.
    change *= min(1.0, FARTHEST * float(part.flat().norm()) / max(float(change.norm()), TINY))
    with torch.no_grad():
        for parameter, piece in zip(part.parameters, part.views(change), strict=True):
            parameter.add_(piece)


def solve_for_outputs(part: ModelPart, inputs: Tensor, wanted: Tensor, steps: int) -> Tensor:
    """Return the smallest change of the weights, flat, that changes the outputs as wanted (CGLS).

    Products with the Jacobian are differences of two forwards, those with its transpose are backwards of one
    graph.
    """
    part.model.eval()  # dropout would make a difference of its own
    weights = part.flat()
    names = [name for name, parameter in part.model.named_parameters() if parameter.requires_grad]
    outputs: Tensor = part.model(inputs)
    reach = finite_step(weights)

    def transposed(difference: Tensor) -> Tensor:
        found = torch.autograd.grad(
            outputs, part.parameters, difference, retain_graph=True, materialize_grads=True
        )
        return torch.cat([piece.reshape(-1) for piece in found])

    def forward(direction: Tensor) -> Tensor:
        length = reach / float(direction.norm())
        moved = dict(zip(names, part.views(weights + length * direction), strict=True))
        with torch.no_grad():
            there: Tensor = functional_call(part.model, moved, (inputs,))
            return (there - outputs.detach()) / length

    change, direction, left, before = torch.zeros_like(weights), torch.zeros_like(weights), wanted, math.inf
    for _ in range(steps):
        slope = transposed(left)
        steepness = float(slope.square().sum())
        if steepness == 0:  # nothing is left that a change of weights could close
            break
        direction = slope + steepness / before * direction
        moves = forward(direction)
        # The products with what is left are the steepness, so a direction moves outputs at least as far as
        # the second says: where a difference of two forwards says less, it is rounding.
        moved = max(float(moves.square().sum()), steepness**2 / float(left.square().sum()))
        share = steepness / moved
        change, left, before = change + share * direction, left - share * moves, steepness
    return change
