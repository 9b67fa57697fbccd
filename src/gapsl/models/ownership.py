"""Refuse halves for what they own, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from gapsl.models.cut import Split
from gapsl.models.refusals import LazyError, SharedParameterError, SmallBatchError


def refuse_lazy(split: Split) -> None:
    """Refuse a layer that takes its size from the first batch, which has not come yet."""
    for side, half in (("device", split.device), ("server", split.server)):
        for name, tensor in _tensors(half):
            if is_lazy(tensor):
                raise LazyError(
                    f"{name} in the {side}'s half has no size yet; run a batch through the model before "
                    "cutting it, or use the layer's ordinary class instead of the lazy one"
                )


def refuse_shared(split: Split) -> None:
    """Refuse a tensor that both halves own."""
    # By address, so that a tied tensor is found even if each half wraps it in a Parameter of its own.
    owned = {tensor.data_ptr(): name for name, tensor in _tensors(split.device) if tensor.numel() > 0}
    for name, tensor in _tensors(split.server):
        if tensor.numel() > 0 and tensor.data_ptr() in owned:
            raise SharedParameterError(
                f"{owned[tensor.data_ptr()]} of the device's half and {name} of the server's are the same "
                "tensor, but the halves live on two machines; untie them (copy.deepcopy one of the layers), "
                "or move the cut so that both are on one side"
            )


def refuse_batch_norm_of_one(split: Split, batch_size: int) -> None:
    """Refuse BatchNorm on batches of a single sample."""
    if batch_size > 1:
        return
    for half in (split.device, split.server):
        for name, part in half.named_modules():
            if isinstance(part, _BatchNorm):
                raise SmallBatchError(
                    f"{name or type(part).__name__} is a BatchNorm, which in training normalises over the "
                    "batch, and a batch of 1 has nothing to compare with; use batches of 2 or more, or "
                    "GroupNorm (norm 'group')"
                )


def _tensors(half: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(half.named_parameters(), half.named_buffers())
