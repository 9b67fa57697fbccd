"""What every method is: how uploads become one server update and the replies.

A method sees uploads and answers them. It knows nothing of transport, files or printing, and the devices
know nothing of it. `Strategy` has the hooks the training loop calls; `Parallel` is the part that methods
with one shared server-side model have in common, so that most of them override `combine` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gapsl.alignment import pairwise_angles, sum_of_rows
from gapsl.common.settings import Settings
from gapsl.device.exchange import DeviceInfo, Exchange, Outcome, Reply, Upload
from gapsl.methods.server_model import Contribution, ServerModel
from gapsl.models.half import Half

# How the devices' losses become the round's: their mean, their mean by amount of data, or their sum.
Reduction = Literal["mean", "samples", "sum"]


class Parameters(Settings):
    """A method's own settings, typed and validated; a method without any uses this as it is."""


@dataclass(frozen=True)
class RunInfo:
    """What a method is told about the run it serves."""

    seed: int
    total_rounds: int
    rounds_per_epoch: int
    batches_per_round: int  # mini-batches a round costs, over all devices
    devices: Mapping[int, DeviceInfo]
    reduction: Reduction = "mean"
    device_gradient: Literal["follow", "own"] = "follow"
    parameters: Parameters = field(default_factory=Parameters)


@dataclass(frozen=True)
class Measured:
    """Angles between the gradients of some devices."""

    devices: Sequence[int]
    angles: Tensor

    def among(self, devices: Iterable[int]) -> Tensor:
        """Return the angles between these devices alone, in ascending order."""
        chosen = [self.devices.index(device) for device in sorted(devices)]
        return self.angles[chosen][:, chosen]


class Strategy(ABC):
    """A method of split learning: the server's side of every round."""

    summary: ClassVar[str]
    section: ClassVar[str | None] = None  # where its parameters stand in a configuration
    parameters: ClassVar[type[Parameters]] = Parameters
    defaults: ClassVar[Mapping[str, Any]] = {}  # settings of a run that are others than usual with it

    # Traits, from which `options.compatibility` tells what goes with the method.
    pooled: ClassVar[bool] = False  # one device has everybody's data (a baseline, not split learning)
    in_turn: ClassVar[bool] = False  # one device at a time, so that there is nobody to agree with
    trains_devices: ClassVar[bool] = True  # replies go back, and client-side models train on them
    labels_at_device: ClassVar[bool] = False  # it works where the server never sees a label
    moves_client_models: ClassVar[bool] = False  # client-side models are averaged, or handed on
    one_loss: ClassVar[bool] = False  # devices cannot descend another loss than the server

    def __init__(self, server: ServerModel, run: RunInfo) -> None:
        self.server, self.run = server, run

    @classmethod
    def differentiates_twice(cls, parameters: Parameters) -> bool:
        """Say whether the server-side model must have a second derivative."""
        return False

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        """Say who sends when in this round; by default everybody present, once."""
        yield Exchange(tuple(sorted(present)))

    @abstractmethod
    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Answer an exchange and update the server. Uploads come in any order, as they arrive.

        `measure` asks for the pairwise angles even where they cost further passes.
        """

    def averaging(self, round: int) -> Mapping[int, float] | None:
        """Return weights by device if the client-side models are averaged after this round."""
        return None

    def average(self, weights: Mapping[int, float]) -> None:
        """Do the server's part of an averaging of the client-side models with these weights."""

    def shared_client_model(self) -> int | Mapping[int, float] | None:
        """Say whose client-side model counts: each device's own (None), one device's, or a weighted mean."""
        return None

    def server_model(self) -> nn.Module:
        """Return the server-side model to evaluate."""
        return self.server.half.model

    def halves(self) -> Mapping[str, Half]:
        """Return everything on the server that trains, by the name to store it under."""
        return {"server": self.server.half}

    def state(self) -> dict[str, Any]:
        """Return what else must survive a restart, as JSON values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""

    def measure_angles(self, uploads: Sequence[Upload]) -> Measured:
        """Return the pairwise angles at the server's present weights, at the price of a pass each."""
        rows = self.server.rows(len(uploads))
        ordered = sorted(uploads, key=lambda upload: upload.device)
        for row, upload in zip(rows, ordered, strict=True):
            self.server.first_order(upload, out=row)
        return Measured([upload.device for upload in ordered], pairwise_angles(rows))


class Parallel(Strategy):
    """One shared server-side model: a gradient for every device at the same weights, then one update."""

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Compute every device's contribution as it arrives, drop what is not finite, and combine."""
        rows = self.server.rows(len(exchange.devices))
        arrived: dict[int, Contribution] = {}
        for upload in uploads:
            row = rows[exchange.devices.index(upload.device)]
            arrived[upload.device] = self.server.first_order(upload, out=row)
        return self.finish(exchange, arrived, rows, partial(self.combine, round))

    def finish(
        self,
        exchange: Exchange,
        arrived: Mapping[int, Contribution],
        rows: Tensor,
        combine: Callable[[Sequence[Contribution], Tensor], Outcome],
    ) -> Outcome:
        """Combine what is finite, in ascending device id, and answer the rest with a zero gradient."""
        good = [i for i, d in enumerate(exchange.devices) if d in arrived and arrived[d].finite]
        contributions = [arrived[exchange.devices[i]] for i in good]
        skipped = tuple(sorted(arrived.keys() - {c.device for c in contributions}))
        replies = {device: nothing(arrived[device].upload) for device in skipped}
        if not contributions:
            return Outcome(replies, {}, skipped)
        gradients = rows if len(good) == len(rows) else rows[good]
        outcome = combine(contributions, gradients)
        self.server.running.update([contribution.statistics for contribution in contributions])
        return replace(
            outcome,
            replies={**replies, **outcome.replies},
            skipped=tuple(sorted({*skipped, *outcome.skipped})),
        )

    @abstractmethod
    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Update the server and answer the devices; row i of `gradients` (S, d) is contribution i's."""

    def reduce(
        self, gradients: Tensor, contributions: Sequence[Contribution], rows: Sequence[int] | None = None
    ) -> Tensor:
        """Return the server's gradient of the round's loss, which these rows, or all, are in."""
        rows = range(len(contributions)) if rows is None else rows
        if self.run.reduction != "samples":
            total = sum_of_rows(gradients, rows)
            return total.div_(len(rows)) if self.run.reduction == "mean" else total
        devices = [contributions[row].device for row in rows]
        total = torch.zeros_like(gradients[0])
        for row, device in zip(rows, devices, strict=True):
            total.add_(gradients[row], alpha=1 / self.divisor(device, devices))
        return total

    def reply(self, gradient: Tensor, device: int, members: Sequence[int]) -> Reply:
        """Return a device's gradient at the scale of the round's loss, which these devices are in."""
        follows = self.run.device_gradient == "follow"
        return Reply(gradient / self.divisor(device, members) if follows else gradient)

    def divisor(self, device: int, members: Sequence[int]) -> float:
        """Return what a device's loss is divided by in the round's loss, which these devices are in.

        Where devices count by their data, one that is not among them gets what they get on average.
        """
        if self.run.reduction == "samples" and device in members:
            total = sum(self.run.devices[member].samples for member in members)
            return total / self.run.devices[device].samples
        return 1 if self.run.reduction == "sum" else len(members)


def nothing(upload: Upload) -> Reply:
    """Return the reply to a device that is not in the loss: a zero gradient, and no step."""
    return Reply(torch.zeros_like(upload.activations), step=False)


def losses_of(contributions: Sequence[Contribution]) -> dict[int, float]:
    """Return the devices' losses by device."""
    return {c.device: c.loss for c in contributions}
