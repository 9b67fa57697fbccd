"""A device that keeps its labels: the model's last layer and the loss are its own, too (U-shaped)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from gapsl.common.streams import global_stream
from gapsl.device.device import Device
from gapsl.device.exchange import Reply, Upload
from gapsl.models.part import ModelPart, digest


class LabelPrivateDevice(Device):
    """The server runs the middle of the model; this device has both ends, and nobody else its labels."""

    def __init__(self, device: Device, head: ModelPart) -> None:
        vars(self).update(vars(device))  # it takes the place of the other
        self.head = head
        self._position = (0, 0)
        self._labels: Tensor | None = None
        self._gradient: Tensor | None = None  # of the head, flat

    def forward(self, round: int, turn: int = 0, *, learn: bool = True) -> Upload:
        """Run the next mini-batch up to the cut; its labels stay here."""
        upload = super().forward(round, turn, learn=learn)
        self._position, self._labels, self._gradient = (round, turn), upload.labels, None
        return replace(upload, labels=upload.labels[:0])

    def head_loss(self, features: Tensor) -> tuple[float, Tensor]:
        """Return the loss of what the server made of the mini-batch, and its derivative.

        The head learns from the first look at a mini-batch; any further one is for the server alone.
        """
        if self._labels is None:
            raise RuntimeError("there is no mini-batch whose loss to compute")
        features = features.detach().to(self.where).requires_grad_()
        self.head.model.train()
        with torch.enable_grad(), global_stream(self.seed, "dropout-head", self.id, *self._position):
            loss = F.cross_entropy(self.head.model(features), self._labels)
        *own, returned = torch.autograd.grad(loss, [*self.head.parameters, features])
        if self._gradient is None:
            self._gradient = torch.cat([piece.reshape(-1) for piece in own])
        return loss.item(), returned

    def head_logits(self, features: Tensor) -> Tensor:
        """Return the logits of an evaluation batch."""
        with torch.no_grad():
            logits: Tensor = self.head.model.eval()(features.to(self.where))
        return logits

    def backward(self, round: int, reply: Reply) -> None:
        """Train both ends, or skip the step."""
        super().backward(round, reply)
        gradient, self._gradient, self._labels = self._gradient, None, None
        if reply.step and gradient is not None:
            self.head.step(round, gradient)

    def forget(self) -> None:
        super().forget()
        self._gradient = self._labels = None

    def digest(self) -> str:
        """Return the SHA-256 of both ends."""
        return hashlib.sha256(f"{super().digest()}+{digest(self.head.model)}".encode()).hexdigest()

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), **{f"head.{name}": t for name, t in self.head.tensors().items()}}

    def load(self, stored: dict[str, Tensor]) -> None:
        super().load({name: t for name, t in stored.items() if not name.startswith("head.")})
        self.head.load({n.removeprefix("head."): t for n, t in stored.items() if n.startswith("head.")})
