"""Losses that change whose gradients go where: turned round at faulty devices, or computed on the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.methods.server_model import Loss

LossAtHead = Callable[[int, Tensor], tuple[float, Tensor]]  # device, features: the loss and its derivative


def check_loss(loss: Loss) -> None:
    """Refuse a loss that cannot be called the way it will be, before anything is trained."""
    function = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        inspect.signature(function).bind("logits", "labels", "device")
    except TypeError as error:
        raise InputError(
            f"a loss is called as loss(logits, labels, device) and returns the batch's mean: {error}"
        ) from None
    except ValueError:  # a builtin that does not tell its arguments
        pass


class FlippedLoss:
    """A loss whose gradients, and nothing else, point the wrong way for some devices."""

    def __init__(self, loss: Loss, devices: Collection[int]) -> None:
        self.loss, self.devices = loss, frozenset(devices)

    def __call__(self, logits: Tensor, labels: Tensor, device: int) -> Tensor:
        """Return the loss, with its gradient or the opposite of it."""
        found = self.loss(logits, labels, device)
        return 2 * found.detach() - found if device in self.devices else found


class HeadLoss:
    """Sends what the server made of a mini-batch to its device's head, and takes loss and derivative back.

    It can be differentiated once: the derivative arrives as numbers.
    """

    def __init__(self, at_head: LossAtHead) -> None:
        self.at_head = at_head

    def __call__(self, features: Tensor, labels: Tensor, device: int) -> Tensor:
        """Return the loss of a device's mini-batch."""
        loss: Tensor = _Received.apply(features, self.at_head, device)  # type: ignore[no-untyped-call]
        return loss


class _Received(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, at_head: LossAtHead, device: int) -> Tensor:
        loss, gradient = at_head(device, features.detach())
        ctx.save_for_backward(gradient.to(features))
        return features.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None
