"""Try modules out and leave no trace in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def untouched(*modules: nn.Module) -> Iterator[None]:
    """Put back each module's training mode and buffers, and torch's generators, after the block.

    Gradients are the caller's duty: `torch.autograd.grad` does not write any.
    """
    parts = list(dict.fromkeys(part for module in modules for part in module.modules()))
    modes = [part.training for part in parts]
    # A forward may write into a buffer (BatchNorm) or bind another tensor to its name: undo both.
    buffers = [
        (part, name, buffer, buffer.detach().clone())
        for part in parts
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
        with torch.no_grad():
            for part, name, buffer, value in buffers:
                part._buffers[name] = buffer.copy_(value)
