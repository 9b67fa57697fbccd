"""Run the halves backward and refuse them if a gradient does not arrive where it is needed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gapsl.models.cut import Split
from gapsl.models.forward import run
from gapsl.models.refusals import GradientError, SecondDerivativeError


def refuse_missing_gradients(split: Split, batch: Tensor, twice: bool) -> None:
    """Refuse halves in which a trainable parameter, or the activations, would get no gradient."""
    activations = run(split, "device", batch)
    received = activations.detach().requires_grad_()  # as on the server: the graph ends at the cut
    wanted = {"the activations": received, **_trainable(split.server)}
    gradients = _gradients("server", run(split, "server", received), wanted, create_graph=twice)
    if twice:
        _refuse_once_differentiable(gradients, wanted)
    trained = _trainable(split.device)
    if trained:  # a frozen half needs no gradient
        _gradients("device", activations, trained)


def _trainable(half: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in half.named_parameters() if parameter.requires_grad}


def _gradients(
    side: str, output: Tensor, wanted: Mapping[str, Tensor], create_graph: bool = False
) -> list[Tensor]:
    if not output.requires_grad:
        raise GradientError(
            f"no gradient flows through the {side}'s half: its forward detaches or runs under no_grad; "
            "remove that, or freeze what is not to be trained (requires_grad_(False))"
        )
    try:
        found = torch.autograd.grad(
            output.square().sum(), list(wanted.values()), create_graph=create_graph, allow_unused=True
        )
    except RuntimeError as error:
        raise GradientError(
            f"the {side}'s half runs forward but not backward: {error}; replace the layer that cannot"
        ) from error
    missing = [name for name, gradient in zip(wanted, found, strict=True) if gradient is None]
    if missing:
        raise GradientError(
            f"in the {side}'s half no gradient reaches {', '.join(missing)}, because its output does not "
            "depend on it; remove what is unused, freeze it (requires_grad_(False)), or move the cut"
        )
    return list(found)


def _refuse_once_differentiable(gradients: list[Tensor], wanted: Mapping[str, Tensor]) -> None:
    scalar = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    try:
        torch.autograd.grad(scalar, list(wanted.values()), allow_unused=True)
    except RuntimeError as error:
        raise SecondDerivativeError(
            f"the server's half has no second derivative: {error}; write fused attention out (matmul, "
            "softmax, matmul), or choose a method that differentiates once"
        ) from error
