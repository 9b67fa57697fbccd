"""Tensors at the cut that stay with the device's worker until somebody computes with them here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

# What a worker has of a device's exchange: activations, labels, gradient, and "regularised" with a number,
# which is the gradient after a regulariser's derivative was added to it.
TensorName = str
Fetch = Callable[[TensorName, int], Tensor]

# What is answered without the numbers.
SHAPES = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "ndim", "nbytes", "itemsize")),
    *(getattr(Tensor, name) for name in ("__len__", "size", "stride", "dim", "numel", "element_size")),
}
DIVISIONS = {Tensor.div, torch.div, Tensor.true_divide, torch.true_divide}


class RemoteTensor(Tensor):
    """A tensor by name: its shape is here, its numbers are fetched when something is computed with them.

    A method that sends a device its own gradient, divided by a number, or zeros, computes nothing here: the
    division is done where the numbers are. Once fetched, it is a tensor like any other.
    """

    what: TensorName
    device_id: int
    divisor: float | None  # None: zeros
    length: float | None = None  # its norm, where the worker has said so
    source: Fetch
    _here: Tensor | None

    @staticmethod
    def of(
        shape: Tensor, what: TensorName, device: int, source: Fetch, divisor: float | None = 1
    ) -> RemoteTensor:
        """Return what a worker keeps of a device, in the shape of a tensor without memory."""
        made: RemoteTensor = Tensor._make_subclass(RemoteTensor, shape)
        made.what, made.device_id, made.divisor, made.source, made._here = what, device, divisor, source, None
        return made

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
                self._here = divided(self.source(self.what, self.device_id), self.divisor)
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
        if isinstance(first, RemoteTensor) and first.away and not kwargs:
            if function in DIVISIONS and first.divisor == 1 and isinstance(args[1], (int, float)):
                return first._divided(args[1])
            if function is torch.zeros_like:
                return first._divided(None)
        args, kwargs = tree_map_only(RemoteTensor, RemoteTensor.here, (tuple(args), kwargs or {}))
        return function(*args, **kwargs)

    def _divided(self, divisor: float | None) -> RemoteTensor:
        return RemoteTensor.of(self._shape(), self.what, self.device_id, self.source, divisor)

    def _shape(self) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)


def divided(tensor: Tensor, divisor: float | None) -> Tensor:
    """Return a new tensor: this one divided by a number, or zeros like it."""
    if divisor is None:
        return torch.zeros_like(tensor)
    return tensor / divisor if divisor != 1 else tensor.clone()


def own(gradient: Tensor, device: int) -> RemoteTensor | None:
    """Return a gradient that a device's own worker has and nobody else, if it is one."""
    if isinstance(gradient, RemoteTensor) and gradient.away and gradient.device_id == device:
        return gradient
    return None


def regularised(gradient: Tensor, name: TensorName) -> RemoteTensor:
    """Return the gradient that a worker has beside one after a regulariser's derivative was added to it."""
    if not isinstance(gradient, RemoteTensor):
        raise ValueError(
            "a regulariser is added to the activation gradient that was computed, and this is another; "
            "change what comes back, or train in one process"
        )
    return RemoteTensor.of(gradient._shape(), name, gradient.device_id, gradient.source)
