"""Memory that forked processes share: anonymous, so that it has no name to leak and ends with them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor, nn

ALIGNED = 64  # bytes; where vector instructions like tensors to begin


def shared_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of these shapes, types and orders in memory in one piece of shared memory, all zero."""
    sizes = [-(-max(1, t.nbytes) // ALIGNED) * ALIGNED for t in tensors]
    memory = mmap.mmap(-1, max(1, sum(sizes)))
    found: list[Tensor] = []
    start = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        # Not a view of one tensor for all: autograd takes a write to one view for a write to every other.
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=max(1, tensor.numel()), offset=start)
        found.append(flat.as_strided(tensor.shape, dense_strides(tensor)))
        start += size
    return found


def dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor in its own order, without gaps."""
    return torch.empty_like(tensor, device="meta").stride()


def share(model: nn.Module) -> None:
    """Move a model's weights and buffers to shared memory; whoever holds the model notices nothing."""
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, shared in zip(tensors, shared_like([t.detach() for t in tensors]), strict=True):
        tensor.data = shared.copy_(tensor.data)
