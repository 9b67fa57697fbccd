"""Probe alignment on the device: the client-side model goes to what its leaders make of the probes.

Where devices agree on their gradients, too, it steps by what their mean does to the probes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import functional_call

from gapsl.alignment import finite_step
from gapsl.common.errors import InputError
from gapsl.models.part import ModelPart, all_finite

FARTHEST = 0.1  # of the length of the weights, in one round
ROUNDING = 1e-4  # of the length of what models make of the probes: those that take the same steps differ less
TINY = 1e-30


def learn_and_align(
    part: ModelPart, sent: Tensor, gradient: Tensor, probes: Tensor, steps: int, rounding: float = 0.0
) -> None:
    """Back-propagate the gradient of the batch's rows, and align where the last rows, the probes', say.

    Both are of the weights as they were when the activations were sent. A way to the leader that is no
    longer than `rounding`, relative to what was sent, is none.
    """
    own = len(sent) - len(probes)
    torch.autograd.backward(sent, torch.cat([gradient[:own], torch.zeros_like(gradient[own:])]))
    if not rounding or float(gradient[own:].norm()) > rounding * float(sent.detach()[own:].norm()):
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
    outputs: Tensor = part.model(inputs)
    weights = part.flat()

    def transposed(difference: Tensor) -> Tensor:
        found = torch.autograd.grad(
            outputs, part.parameters, difference, retain_graph=True, materialize_grads=True
        )
        return torch.cat([piece.reshape(-1) for piece in found])

    change, direction, left, before = torch.zeros_like(weights), torch.zeros_like(weights), wanted, math.inf
    for _ in range(steps):
        slope = transposed(left)
        steepness = float(slope.square().sum())
        # Nothing is left that a change of weights could close, or that has a length in this precision.
        if steepness == 0 or float(left.square().sum()) == 0:
            break
        direction = slope + steepness / before * direction
        moves = moved_by(part, inputs, outputs.detach(), direction)
        # The products with what is left are the steepness, so a direction moves outputs at least as far as
        # the second says: where a difference of two forwards says less, it is rounding.
        moved = max(float(moves.square().sum()), steepness**2 / float(left.square().sum()))
        share = steepness / moved
        change, left, before = change + share * direction, left - share * moves, steepness
    return change


def moved_by(part: ModelPart, inputs: Tensor, outputs: Tensor, direction: Tensor) -> Tensor:
    """Return how fast these outputs change along a direction of the weights: a difference of two forwards."""
    weights = part.flat()
    length = finite_step(weights) / float(direction.norm())
    names = [name for name, parameter in part.model.named_parameters() if parameter.requires_grad]
    moved = dict(zip(names, part.views(weights + length * direction), strict=True))
    with torch.no_grad():
        there: Tensor = functional_call(part.model, moved, (inputs,))
        return (there - outputs) / length


class Agreement:
    """A device's part in agreeing on gradients: what it proposes, and the step that all take.

    A proposal is what a step against the gradient would do to the probes, at rate 1. All take the smallest
    step that does what the proposals do on average. Two pictures do not carry a gradient whole: what solving
    for its own proposal does not find of it, a device keeps, and proposes again with the next (error
    feedback).
    """

    def __init__(self, part: ModelPart, steps: int) -> None:
        self.part, self.steps = part, steps
        self.kept = part.flat().zero_()
        self._own: tuple[int, Tensor] | None = None  # a round, and the gradient there
        self._asked: tuple[Tensor, Tensor, Tensor | None] | None = None  # probes, the proposal, and of what

    @property
    def proposed(self) -> bool:
        """Whether a proposal waits for its reply."""
        return self._asked is not None

    def take(self, round: int, gradient: Tensor) -> None:
        """Note a round's own gradient, flat."""
        if self._own is not None and self._own[0] == round:
            raise InputError("probe_gradients is for methods in which a device trains once in a round")
        self._own = round, gradient

    def propose(self, round: int, probes: Tensor) -> Tensor:
        """Return what a step would do to the probes; zeros where the device has no gradient of this round."""
        self.part.model.eval()
        with torch.no_grad():
            outputs: Tensor = self.part.model(probes)
        moves, whole = torch.zeros_like(outputs), None
        if self._own is not None and self._own[0] == round:
            whole = self._own[1] + self.kept
            if float(whole.norm()) > 0:
                moves = -moved_by(self.part, probes, outputs, whole)
        self._own, self._asked = None, (probes, moves, whole)
        return moves

    def step(self, round: int, agreed: Tensor | None) -> None:
        """Step by what the devices agreed on, if they did."""
        assert self._asked is not None
        (probes, moves, whole), self._asked = self._asked, None
        if agreed is None:
            return
        gradient = -solve_for_outputs(self.part, probes, agreed.to(probes), self.steps)
        if whole is not None:
            kept = whole + solve_for_outputs(self.part, probes, moves, self.steps)
            self.kept = kept if all_finite(kept) else self.kept
        if all_finite(gradient):
            self.part.step(round, gradient)

    def forget(self) -> None:
        """Drop what the round was about to bring."""
        self._own = self._asked = None

    def load(self, kept: Tensor) -> None:
        """Go on from what was kept."""
        self.kept = kept.clone()
        self.forget()
