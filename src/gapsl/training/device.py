"""A device: its client-side model, its optimizer and the order of its data. It knows no method."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from gapsl.halves import Half
from gapsl.strategies.exchange import Reply, Upload
from gapsl.strategies.passes import all_finite
from gapsl.streams import global_stream


class BatchSource(Protocol):
    """What a device draws its mini-batches from."""

    drawn: int

    @property
    def batches_per_pass(self) -> int:
        """Mini-batches in one pass over the data."""
        ...

    def draw(self, round: int, turn: int = 0) -> tuple[Tensor, Tensor]:
        """Return the next inputs and labels."""
        ...


class Device:
    """One edge device: forward to the cut, and backward from it."""

    def __init__(self, id: int, half: Half, batches: BatchSource, *, seed: int, where: torch.device) -> None:
        self.id, self.half, self.batches, self.seed, self.where = id, half, batches, seed, where
        self._sent: Tensor | None = None  # activations whose graph waits for the reply
        self._buffers: list[Tensor] = []  # BatchNorm's running statistics before that forward

    def forward(self, round: int, turn: int = 0, *, learn: bool = True) -> Upload:
        """Run the next mini-batch up to the cut."""
        inputs, labels = self.batches.draw(round, turn)
        model = self.half.model.train(learn)
        self._buffers = [buffer.clone() for buffer in model.buffers()] if learn else []
        inputs = inputs.to(self.where, self.half.parameters[0].dtype)
        with (
            global_stream(self.seed, "dropout-device", self.id, round, turn),
            torch.set_grad_enabled(learn),
        ):
            activations = model(inputs)
        self._sent = activations if learn else None
        return Upload(self.id, round, turn, activations.detach(), labels.to(self.where))

    def backward(self, round: int, reply: Reply) -> None:
        """Train the half on the gradient at the cut, or skip the step and all that belongs to it."""
        sent, self._sent = self._sent, None
        if sent is None:
            return
        if not reply.step:
            if not all_finite(sent.detach()):  # such a batch must not live on in the running statistics
                for buffer, before in zip(self.half.model.buffers(), self._buffers, strict=True):
                    buffer.copy_(before)
            return
        torch.autograd.backward(sent, reply.gradient)
        self.half.step(round)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that has to be stored."""
        return {**self.half.tensors(), "drawn": torch.tensor(self.batches.drawn)}

    def load(self, stored: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        self.half.load({name: value for name, value in stored.items() if name != "drawn"})
        self.batches.drawn = int(stored["drawn"])
