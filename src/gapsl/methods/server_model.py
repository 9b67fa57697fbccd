"""The server's passes: forward and backward for one device's upload, repeatable to the bit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from gapsl.alignment import Pull, cosine_pull, exact_product, finite_product, finite_step
from gapsl.common.clock import Clock, timed
from gapsl.common.streams import global_stream
from gapsl.device.exchange import Upload
from gapsl.methods.batch_norm import RunningStatistics, Statistics
from gapsl.methods.contribution import (
    Contribution,
    Elsewhere,
    Halfway,
    Penalty,
    Regulariser,
)
from gapsl.models.part import ModelPart, all_finite, length_of

Loss = Callable[[Tensor, Tensor, int], Tensor]  # logits, labels, device

SAFE = 1e15  # no step of weights and a gradient below it overflows, whatever the optimizer keeps of them


def cross_entropy(logits: Tensor, labels: Tensor, device: int) -> Tensor:
    """Return the mean cross-entropy of a device's batch."""
    return F.cross_entropy(logits, labels)


Pass = TypeVar("Pass", bound=Callable[..., Any])


def clocked_pass(run: Pass) -> Pass:
    """Count the seconds of a method of the server's passes for the device that it is about."""

    @functools.wraps(run)
    def counted(self: Any, about: Any, *args: Any, **kwargs: Any) -> Any:
        with timed(self.clock.of(about.device), "server"):
            return run(self, about, *args, **kwargs)

    return cast(Pass, counted)


class ServerModel:
    """The server-side model and the passes through it.

    A pass draws its dropout from the stream named by (seed, device, round, turn), so every further pass
    for the same upload sees the same masks; BatchNorm uses the upload's own batch every time.
    """

    def __init__(
        self,
        part: ModelPart,
        *,
        seed: int,
        loss: Loss = cross_entropy,
        device_loss: Loss | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.part, self.seed, self.loss = part, seed, loss
        self.clock = clock or Clock()  # told how long passes take
        self.device_loss = device_loss  # what devices descend, where it is not what the server does
        part.model.train()  # whatever state it was handed over in
        self.running = RunningStatistics(part.model)
        self.elsewhere: Elsewhere | None = None
        self._rows = torch.empty(0)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process: a round's gradients, and who computes elsewhere."""
        return {**vars(self), "elsewhere": None, "_rows": torch.empty(0)}

    def copy(self) -> Self:
        """Return passes over an independent copy of the model."""
        return type(self)(self.part.copy(), **self._words())

    def _words(self) -> dict[str, Any]:
        """Return what a copy is made with besides the model."""
        return {"seed": self.seed, "loss": self.loss, "device_loss": self.device_loss, "clock": self.clock}

    @property
    def row_size(self) -> int:
        """The numbers that are kept of a device's gradient in a round: all."""
        return self.part.size

    def begin(self) -> None:
        """Begin a round beside the devices."""

    def rows(self, count: int) -> Tensor:
        """Return a (count, d) matrix for a round's gradients, the same memory every round."""
        first = self.part.parameters[0]
        if len(self._rows) < count or self._rows.dtype != first.dtype or self._rows.device != first.device:
            self._rows = torch.empty(count, self.row_size, dtype=first.dtype, device=first.device)
        return self._rows[:count]

    def keep_rows(self, rows: Tensor) -> None:
        """Take the memory for a round's gradients."""
        self._rows = rows

    @clocked_pass
    def first_order(self, upload: Upload, out: Tensor | None = None) -> Contribution:
        """Compute L_i, g_i and the activations' gradient; g_i is written into `out` if given.

        Where devices have a loss of their own, the activations' gradient is that loss's.
        """
        computed = self.elsewhere.contribution(self, upload) if self.elsewhere is not None else None
        if computed is not None:
            if out is None or out.data_ptr() == computed.gradient.data_ptr():
                return computed
            return replace(computed, gradient=out.copy_(computed.gradient))
        logits, activations, statistics = self.logits(upload)
        loss = self.loss(logits, upload.labels, upload.device)
        if self.device_loss is None:
            gradient, returned = self._gradients(loss, activations, out)
        else:
            theirs = self.device_loss(logits, upload.labels, upload.device)
            (returned,) = torch.autograd.grad(theirs, activations, retain_graph=True, materialize_grads=True)
            pieces = torch.autograd.grad(loss, self.part.parameters, materialize_grads=True)
            gradient = self.flatten(pieces, out)
        return Contribution.of(upload, loss.item(), gradient, returned, statistics)

    @clocked_pass
    def halfway(self, upload: Upload) -> Halfway:
        """Run forward to the logits, and back from the loss to them."""
        computed = self.elsewhere.halfway(self, upload) if self.elsewhere is not None else None
        if computed is not None:
            return computed
        logits, activations, statistics = self.logits(upload)
        loss = self.loss(logits, upload.labels, upload.device)
        (last,) = torch.autograd.grad(loss, logits, retain_graph=True)
        return Halfway(upload, loss.item(), last, statistics, logits, activations)

    def backwards(
        self, found: Sequence[Halfway], last: Sequence[Tensor], rows: Sequence[Tensor]
    ) -> list[Contribution]:
        """Run back from the logits with these gradients there; g_i are written into the rows."""
        if self.elsewhere is not None and any(one.logits is None for one in found):
            return self.elsewhere.backwards(found, last)
        return [self.backward(*one) for one in zip(found, last, rows, strict=True)]

    @clocked_pass
    def backward(self, found: Halfway, last: Tensor, row: Tensor) -> Contribution:
        """Run one upload back from the logits; g_i is written into the row."""
        assert found.logits is not None
        inputs = [*self.part.parameters, found.activations]
        *pieces, returned = torch.autograd.grad(found.logits, inputs, last, materialize_grads=True)
        return Contribution.of(
            found.upload, found.loss, self.flatten(pieces, row), returned, found.statistics
        )

    def step(self, round: int, gradient: Tensor) -> bool:
        """Take the server's step, unless it would leave something that is not finite; say whether it did."""
        part = self.part
        if self._safe(gradient):
            part.step(round, gradient)
            return True
        before = {name: tensor.clone() for name, tensor in part.tensors().items()}
        part.step(round, gradient)
        if all_finite(*part.tensors().values()):
            return True
        part.load(before)
        return False

    def _safe(self, gradient: Tensor) -> bool:
        """Say whether a step cannot overflow, which is so in all but a diverging run."""
        weights = torch.stack([torch.linalg.vector_norm(p.detach()) for p in self.part.parameters])
        groups = self.part.optimizer.param_groups
        factors = [max(1.0, group["lr"]) * max(1.0, group.get("weight_decay", 0.0)) for group in groups]
        return bool(max(factors) * (length_of(gradient) + float(weights.max())) < SAFE)

    def logits(self, upload: Upload) -> tuple[Tensor, Tensor, Statistics]:
        """Run forward only as far as the logits; returns them, the leaf activations and the statistics."""
        activations = upload.activations.detach().requires_grad_()
        with self._stream(upload), self.running.captured() as statistics:
            logits = self.part.model(activations)
        return logits, activations, statistics

    def penalty(
        self, contribution: Contribution, leader: Tensor, mode: Penalty
    ) -> tuple[Pull, tuple[Tensor, Tensor] | None]:
        """Return cos theta_lead,i and the derivative of (1 - cos) for weights (flat) and activations.

        The derivative is None where it is exactly zero or, in mode "none", not asked for.
        """
        pull = cosine_pull(contribution.gradient, leader)
        if pull.direction is None or mode == "none":
            return pull, None
        compute = self._exact if mode == "exact" else self._finite
        weights, activations = compute(contribution, pull.direction)
        return pull, (weights.neg_(), activations.neg_())

    def regularise(
        self, found: Sequence[Contribution], rows: Sequence[Tensor], leader: Tensor, how: Regulariser
    ) -> list[Tensor | None]:
        """Add the regulariser's derivative to the rows, in place, and return the activations' gradients.

        Where the derivative is not finite the row stays as it is, and the gradient is None.
        """
        if not how.changes:
            return [one.activation_gradient for one in found]
        if self.elsewhere is not None:
            return self.elsewhere.regularise(found, rows, leader, how)
        returned: list[Tensor | None] = []
        for contribution, row in zip(found, rows, strict=True):
            on_weights, on_activations = self.regularised(contribution, leader, how)
            if on_weights is not None:
                row.add_(on_weights, alpha=how.weight)
            returned.append(on_activations)
        return returned

    @clocked_pass
    def regularised(
        self, contribution: Contribution, leader: Tensor, how: Regulariser
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return what is to be added to a device's gradient, times the weight, and its activations' gradient.

        Nothing is to be added where the derivative is zero; where it is not finite, both are None.
        """
        _, derivative = self.penalty(contribution, leader, how.mode)
        if derivative is None:
            return None, contribution.activation_gradient
        if not all_finite(*derivative):
            return None, None
        on_weights, on_activations = derivative
        return on_weights, contribution.activation_gradient.add(on_activations, alpha=how.weight)

    def flatten(self, pieces: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
        """Join tensors shaped like the parameters into one flat vector."""
        if out is None:
            out = torch.empty(self.part.size, dtype=pieces[0].dtype, device=pieces[0].device)
        torch.cat([piece.reshape(-1) for piece in pieces], out=out)
        return out

    def _stream(self, upload: Upload) -> AbstractContextManager[None]:
        return global_stream(self.seed, "dropout-server", upload.device, upload.round, upload.turn)

    def _again(self, upload: Upload) -> tuple[Tensor, Tensor]:
        """Return the server's own loss on an upload, and the leaf activations."""
        logits, activations, _ = self.logits(upload)
        return self.loss(logits, upload.labels, upload.device), activations

    def _gradients(
        self, loss: Tensor, activations: Tensor, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a loss's gradients for the weights (flat, in `out` if given) and for the activations."""
        inputs = [*self.part.parameters, activations]
        *pieces, on_activations = torch.autograd.grad(loss, inputs, materialize_grads=True)
        return self.flatten(pieces, out), on_activations

    def _exact(self, contribution: Contribution, direction: Tensor) -> tuple[Tensor, Tensor]:
        loss, activations = self._again(contribution.upload)
        weights, mixed = exact_product(loss, self.part.parameters, activations, self.part.views(direction))
        return self.flatten(weights), mixed

    def _finite(self, contribution: Contribution, direction: Tensor) -> tuple[Tensor, Tensor]:
        home = [p.detach().clone() for p in self.part.parameters]

        def gradients_at(offset: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                for parameter, piece in zip(self.part.parameters, self.part.views(offset), strict=True):
                    parameter.add_(piece)
            try:
                return self._gradients(*self._again(contribution.upload))
            finally:
                with torch.no_grad():  # put back, not subtracted: the weights must not lose a bit
                    for parameter, value in zip(self.part.parameters, home, strict=True):
                        parameter.copy_(value)

        returned = contribution.activation_gradient
        if self.device_loss is not None:  # the regulariser is of the server's loss, whatever devices descend
            (returned,) = torch.autograd.grad(*self._again(contribution.upload), materialize_grads=True)
        step = finite_step(self.flatten(home))
        return finite_product(gradients_at, contribution.gradient, returned, direction, step)
