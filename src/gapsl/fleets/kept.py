"""Tensors at the cut that stay with the device's worker until somebody computes with them here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

# What a worker keeps of a device's exchange; the last is the gradient with the regulariser's derivative.
What = Literal["activations", "labels", "gradient", "regularised"]
Fetch = Callable[[What, int], Tensor]

# What is answered without the numbers.
SHAPES = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "ndim", "nbytes", "itemsize")),
    *(getattr(Tensor, name) for name in ("__len__", "size", "stride", "dim", "numel", "element_size")),
}
DIVISIONS = {Tensor.div, torch.div, Tensor.true_divide, torch.true_divide}


class Kept(Tensor):
    """A tensor by name: its shape is here, its numbers are fetched when something is computed with them.

    A method that sends a device its own gradient, divided by a number, or zeros, computes nothing here: the
    division is done where the numbers are. Once fetched, it is a tensor like any other.
    """

    what: What
    device_id: int
    divisor: float | None  # None: zeros
    length: float | None = None  # its norm, where the worker has said so
    _fetch: Fetch
    _here: Tensor | None

    @staticmethod
    def of(shape: Tensor, what: What, device: int, fetch: Fetch, divisor: float | None = 1) -> Kept:
        """Return what a worker keeps of a device, in the shape of a tensor without memory."""
        kept: Kept = Tensor._make_subclass(Kept, shape)
        kept.what, kept.device_id, kept.divisor, kept._fetch, kept._here = what, device, divisor, fetch, None
        return kept

    @property
    def away(self) -> bool:
        """Whether its numbers have not been asked for."""
        return self._here is None

    def here(self) -> Tensor:
        """Return the tensor with its numbers."""
        if self._here is None:
            if self.divisor is None:
                self._here = torch.zeros_like(self._shape(), device="cpu")
            else:
                self._here = divided(self._fetch(self.what, self.device_id), self.divisor)
        return self._here

    def norm(self, *args: Any, **kwargs: Any) -> Any:
        """Return its length as the worker has said it, if that is all that is asked for."""
        if self.length is None or not self.away or args or kwargs:
            return self.here().norm(*args, **kwargs)
        return torch.tensor(self.length, dtype=self.dtype)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Answer what can be answered from here, and fetch for everything else."""
        if function in SHAPES:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        first = args[0] if args else None
        if isinstance(first, Kept) and first.away and not kwargs:
            if function in DIVISIONS and first.divisor == 1 and isinstance(args[1], (int, float)):
                return first._divided(args[1])
            if function is torch.zeros_like:
                return first._divided(None)
        args, kwargs = tree_map_only(Kept, Kept.here, (tuple(args), kwargs or {}))
        return function(*args, **kwargs)

    def _divided(self, divisor: float | None) -> Kept:
        return Kept.of(self._shape(), self.what, self.device_id, self._fetch, divisor)

    def _shape(self) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)


def divided(tensor: Tensor, divisor: float | None) -> Tensor:
    """Return a new tensor: this one divided by a number, or zeros like it."""
    if divisor is None:
        return torch.zeros_like(tensor)
    return tensor / divisor if divisor != 1 else tensor.clone()


def own(gradient: Tensor, device: int) -> Kept | None:
    """Return a gradient that a device's own worker has and nobody else, if it is one."""
    if isinstance(gradient, Kept) and gradient.away and gradient.device_id == device:
        return gradient
    return None


def regularised(gradient: Tensor) -> Kept:
    """Return the gradient that is kept in place of one after a regulariser's derivative was added to it."""
    assert isinstance(gradient, Kept)
    return Kept.of(gradient._shape(), "regularised", gradient.device_id, gradient._fetch)
