"""The derivative of GDA's regulariser, lambda * (1 - cos theta_lead,i) of Eq. (7).

The cosine depends on the weights only through g_i, itself a gradient. So its derivative is a product of
the loss's second derivatives with one vector u_i = d cos_i / d g_i:

    d/dw_s [cos_i] = H_ww u_i        (the server's weights)
    d/da_i [cos_i] = H_aw u_i        (the activations: this part reaches the device)

`exact_product` computes both by automatic differentiation, `finite_product` from one more gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 8  # rounding errors up to so many machine epsilons are no direction
ALIGNED = 1e-6  # where 1 - cos is below this the gradient is aligned, and the derivative is 0


@dataclass(frozen=True)
class Pull:
    """How a gradient would have to change for its cosine to the leader to grow."""

    cosine: float
    direction: Tensor | None  # u_i, like g_i; None where the derivative is exactly 0


def cosine_pull(gradient: Tensor, leader: Tensor) -> Pull:
    """Return cos theta_lead,i and its derivative with respect to the gradient g_i, both flat (d,)."""
    length = float(torch.linalg.vector_norm(gradient))
    leader_length = float(torch.linalg.vector_norm(leader))
    if length == 0 or leader_length == 0:
        return Pull(0.0, None)
    direction = leader / leader_length
    cosine = max(-1.0, min(1.0, float(gradient @ direction) / length))
    if 1 - cosine < ALIGNED:
        return Pull(cosine, None)
    direction.sub_(gradient, alpha=cosine / length)
    # Opposite to the leader there is no way to turn either; what is left then is rounding.
    if float(torch.linalg.vector_norm(direction)) <= ROUNDING * torch.finfo(gradient.dtype).eps:
        return Pull(cosine, None)
    return Pull(cosine, direction.div_(length))


def exact_product(
    loss: Tensor, parameters: Sequence[Tensor], activations: Tensor, direction: Sequence[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Return (H_ww u, H_aw u) of a loss by double backward; `direction` is u, shaped like `parameters`.

    Double backward, not grad of a forward-mode derivative: that is silently wrong for LayerNorm and for
    BatchNorm in training mode.
    """
    gradients = torch.autograd.grad(loss, list(parameters), create_graph=True, materialize_grads=True)
    pairs = [(g, u) for g, u in zip(gradients, direction, strict=True) if g.requires_grad]
    inputs = [*parameters, activations]
    if not pairs:  # a loss linear in its weights has no curvature
        return [torch.zeros_like(p) for p in parameters], torch.zeros_like(activations)
    products = torch.autograd.grad(
        [g for g, _ in pairs],
        inputs,
        [u for _, u in pairs],
        allow_unused=True,
        materialize_grads=True,
    )
    return list(products[:-1]), products[-1]


def finite_step(weights: Tensor) -> float:
    """Return the length of the finite-difference step for weights of this precision and size."""
    # The square root of the rounding error balances it against the truncation error.
    length = float(torch.linalg.vector_norm(weights))
    return 2 * math.sqrt(torch.finfo(weights.dtype).eps) * (1 + length)


def finite_product(
    gradients_at: Callable[[Tensor], tuple[Tensor, Tensor]],
    gradient: Tensor,
    activation_gradient: Tensor,
    direction: Tensor,
    step: float,
) -> tuple[Tensor, Tensor]:
    """Return (H_ww u, H_aw u) from one more gradient, at the weights moved along u by `step`.

    `gradients_at(offset)` gives the flat gradient and the activations' gradient at weights + offset;
    `gradient` and `activation_gradient` are those at the weights themselves.
    """
    length = float(torch.linalg.vector_norm(direction))
    if length == 0:
        return torch.zeros_like(gradient), torch.zeros_like(activation_gradient)
    moved, moved_activation = gradients_at(direction * (step / length))
    scale = length / step
    return (moved - gradient).mul_(scale), (moved_activation - activation_gradient).mul_(scale)
