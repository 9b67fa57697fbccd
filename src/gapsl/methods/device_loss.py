"""A loss that is computed where the labels are: on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Judge = Callable[[int, Tensor], tuple[float, Tensor]]  # device, features: the loss and its derivative


class LossAtDevice:
    """Sends what the server made of a mini-batch to its device, and takes loss and derivative back.

    It can be differentiated once: the derivative arrives as numbers.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge

    def __call__(self, features: Tensor, labels: Tensor, device: int) -> Tensor:
        """Return the loss of a device's mini-batch."""
        loss: Tensor = _Judged.apply(features, self.judge, device)  # type: ignore[no-untyped-call]
        return loss


class _Judged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, judge: Judge, device: int) -> Tensor:
        loss, gradient = judge(device, features.detach())
        ctx.save_for_backward(gradient.to(features))
        return features.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None
