"""How much memory the graphs of devices that wait for their replies may take."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from gapsl.common.errors import InputError
from gapsl.common.streams import global_stream

MEGABYTE = 2**20


class GraphBudget:
    """Says whether a device may keep the graph of its forward, or has to run it again for its reply."""

    def __init__(self, limit: int, each: int) -> None:
        if limit < each:
            raise InputError(
                f"graph_memory is {limit // MEGABYTE} MB, and the graph of one device takes "
                f"{-(-each // MEGABYTE)} MB; give it at least that"
            )
        self.limit, self.each = limit, each
        self._held: set[int] = set()

    def keep(self, device: int) -> bool:
        """Say whether there is room for a device's graph, and take it."""
        self._held.discard(device)
        if (len(self._held) + 1) * self.each > self.limit:
            return False
        self._held.add(device)
        return True

    def release(self, device: int) -> None:
        """Give back the room of a device's graph."""
        self._held.discard(device)


def graph_bytes(model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes that a forward keeps for its backward besides the weights."""
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    found: dict[int, int] = {}

    def noted(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with global_stream(0, "graph"), saved_tensors_hooks(noted, lambda tensor: tensor):
        outputs = model.train()(inputs)
    return max(1, sum(found.values())) if isinstance(outputs, torch.Tensor) else 1
