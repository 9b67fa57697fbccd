"""EPSL: part of the last-layer gradients is averaged over devices, back-propagated once and broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from gapsl.device.exchange import Exchange, Outcome, Upload
from gapsl.methods.base import Parameters
from gapsl.methods.contribution import Contribution, Halfway, losses_of
from gapsl.methods.psl import Psl
from gapsl.methods.robust import clipped

Mean = Callable[[Sequence[int], Sequence[Tensor]], Tensor]  # devices, and a tensor of each
ROUNDING = 1e-9  # 7 % of 100 rows are 7, not 7.000000000000001


class EpslParameters(Parameters):
    """EPSL's settings."""

    phi: float = Field(0.5, ge=0, le=1, description="share of each batch whose gradients are averaged")
    hidden: Literal["mean", "per-device"] = Field(
        "mean",
        description="hidden activations for the averaged rows: of the devices' mean activations, or each own",
    )


class Epsl(Psl):
    """Efficient parallel split learning with a fixed cut; phi = 0 is PSL."""

    summary = "efficient PSL: last-layer gradients of a share phi of each batch averaged and broadcast"
    section: ClassVar[str | None] = "epsl"
    parameters: ClassVar[type[Parameters]] = EpslParameters
    labels_at_device: ClassVar[bool] = False  # it averages gradients at the logits
    sketches: ClassVar[bool] = False
    one_loss: ClassVar[bool] = True  # what is averaged and broadcast is the gradient that the server steps on

    @property
    def chosen(self) -> EpslParameters:
        """This run's parameters."""
        assert isinstance(self.run.parameters, EpslParameters)
        return self.run.parameters

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Average the last-layer gradients of the first rows, and combine as PSL does."""
        if self.chosen.phi == 0:
            return super().step(round, exchange, uploads, measure=measure)
        waiting = sorted((self.server.halfway(upload) for upload in uploads), key=lambda w: w.upload.device)
        measured = self.measure_angles([w.upload for w in waiting]) if measure else None
        finite = {w.upload.device: w for w in waiting if w.finite}
        shared = math.ceil(self.chosen.phi * len(waiting[0].last) - ROUNDING)
        rows = self.server.rows(len(exchange.devices))
        places = [exchange.devices.index(w.upload.device) for w in waiting]
        arrived = self._backwards(waiting, shared, [rows[place] for place in places])

        def combine(contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
            ids = [c.device for c in contributions]
            if self.chosen.hidden == "per-device" and len(ids) < len(finite):
                # An outlier was among those averaged: once more without it.
                again = [self.server.halfway(c.upload) for c in contributions]
                contributions = list(self._backwards(again, shared, gradients).values())
                gradients = clipped(gradients) if self.run.robust == "clip" else gradients
            total = self.reduce(gradients, contributions)
            if self.chosen.hidden == "mean":
                taken = [finite[device] for device in ids]
                on_weights, broadcast = self._through_mean(taken, shared, self._mean)
                if self.run.robust != "none":  # the server's part alone: replies stay as they are
                    on_weights, _ = self._through_mean(taken, shared, self._robust_mean)
                returned = [c.activation_gradient + broadcast for c in contributions]
                # At PSL's scale: as if every one of the devices had contributed this gradient.
                total.add_(on_weights, alpha=len(ids) if self.run.reduction == "sum" else 1)
            else:
                mean = self._mean(ids, [c.activation_gradient[:shared] for c in contributions])
                returned = [torch.cat([mean, c.activation_gradient[shared:]]) for c in contributions]
            self.update(round, total, contributions)
            replies = {
                c.device: self.reply(gradient, c.device, ids)
                for c, gradient in zip(contributions, returned, strict=True)
            }
            losses = losses_of(contributions)
            angles = measured.among(losses) if measured is not None else None
            return Outcome(replies, losses, angles=angles)

        return self.finish(exchange, arrived, rows, combine)

    def beside(self, upload: Upload, row: Tensor) -> Contribution | Halfway:
        """Run to the logits: the way back waits for the other devices' last-layer gradients."""
        return super().beside(upload, row) if self.chosen.phi == 0 else self.server.halfway(upload)

    def _backwards(
        self, waiting: Sequence[Halfway], shared: int, rows: Iterable[Tensor]
    ) -> dict[int, Contribution]:
        """Back-propagate each device's own rows, and the averaged ones where hidden activations are own."""
        finite = [w for w in waiting if w.finite]
        averaged = self._averaged(finite, shared, self._mean) if finite else waiting[0].last[:shared]
        own = torch.zeros_like(averaged) if self.chosen.hidden == "mean" else averaged
        # What is not finite stays so, also where only rows that are averaged without it would tell.
        told = [w if w.finite else replace(w, loss=math.nan) for w in waiting]
        found = self.server.backwards(told, [torch.cat([own, w.last[shared:]]) for w in told], list(rows))
        return {one.device: one for one in found}

    def _through_mean(self, waiting: Sequence[Halfway], shared: int, mean_of: Mean) -> tuple[Tensor, Tensor]:
        """Back-propagate the averaged rows once, through the devices' mean activations."""
        first = waiting[0].upload
        # The whole batch goes through, so that BatchNorm sees as many rows as it does for a device.
        activations = mean_of([w.upload.device for w in waiting], [w.activations for w in waiting])
        mean = Upload(-1, first.round, first.turn, activations, first.labels)
        logits, activations, _ = self.server.logits(mean)
        inputs = [*self.server.part.parameters, activations]
        last = torch.zeros_like(logits)
        last[:shared] = self._averaged(waiting, shared, mean_of)
        gradients = torch.autograd.grad(logits, inputs, last, materialize_grads=True)
        return self.server.flatten(gradients[:-1]), gradients[-1]

    def _averaged(self, waiting: Sequence[Halfway], shared: int, mean_of: Mean) -> Tensor:
        return mean_of([w.upload.device for w in waiting], [w.last[:shared] for w in waiting])

    def _mean(self, devices: Sequence[int], tensors: Sequence[Tensor]) -> Tensor:
        """Return the devices' mean, in which they count as they do in the round's loss."""
        total = torch.zeros_like(tensors[0])
        for device, tensor in zip(devices, tensors, strict=True):
            by_data = self.run.reduction == "samples"
            share = 1 / (self.divisor(device, devices) if by_data else len(devices))
            total.add_(tensor.detach(), alpha=share)
        return total

    def _robust_mean(self, devices: Sequence[int], tensors: Sequence[Tensor]) -> Tensor:
        """Return what `robust` has in place of the devices' mean."""
        rows = torch.stack([tensor.detach().flatten() for tensor in tensors])
        if not self.estimates:
            return self._mean(devices, [row.view_as(tensors[0]) for row in clipped(rows)])
        return self.mean(rows, range(len(rows))).view_as(tensors[0])
