"""What every method is: how uploads become one server update and the replies.

A method sees uploads and answers them. It knows nothing of transport, files or printing, and the devices
know nothing of it. `Strategy` has the hooks the training loop calls; `Parallel` is the part that methods
with one shared server-side model have in common, so that most of them override `combine` alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gapsl.alignment import mean_of_rows, pairwise_angles, sum_of_rows
from gapsl.common.settings import Settings
from gapsl.device.exchange import DeviceInfo, Exchange, Outcome, Reply, Upload
from gapsl.methods.contribution import Contribution, Halfway, Measured, losses_of, nothing, size_of
from gapsl.methods.outliers import WINDOW, Size, Usual, outliers, reason
from gapsl.methods.robust import Robust, clipped, typical
from gapsl.methods.server_model import ServerModel
from gapsl.methods.sketched import SketchedServerModel
from gapsl.models.part import ModelPart

# How the devices' losses become the round's: their mean, their mean by amount of data, or their sum.
Reduction = Literal["mean", "samples", "sum"]
CHEAP = 100  # devices up to which the angles between all of them are little beside their passes


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
    cross_entropy: bool = False  # whether the loss is the built-in one, which is never negative
    classes: int = 1
    robust: Robust = "none"
    robust_trim: float = 0.3


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
    counts_rounds: ClassVar[bool] = False  # what it does depends on how many rounds there are in all
    one_loss: ClassVar[bool] = False  # devices cannot descend another loss than the server
    one_step: ClassVar[bool] = False  # the server takes one step on the gradients of all devices of a round
    side_by_side: ClassVar[bool] = False  # devices of a round can be computed side by side, in any order
    sketches: ClassVar[bool] = False  # all it needs of gradients are angles, and sums by `reduce`

    def __init__(self, server: ServerModel, run: RunInfo) -> None:
        self.server, self.run = server, run
        self.lengths: deque[float] = deque(maxlen=WINDOW)  # of the gradients that were accepted last

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

    def passes(self, device: int) -> ServerModel:
        """Return the server-side model that a device's uploads go through."""
        return self.server

    def beside(self, upload: Upload, row: Tensor) -> Contribution | Halfway:
        """Compute what depends on one upload alone; its gradient is written into the row."""
        return self.passes(upload.device).first_order(upload, out=row)

    def passes_state(self) -> dict[str, Any]:
        """Return what the loss of the next passes depends on besides weights, as JSON values."""
        return {}

    def load_passes_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `passes_state` returned elsewhere."""

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
        return self.server.part.model

    def parts(self) -> Mapping[str, ModelPart]:
        """Return everything on the server that trains, by the name to store it under."""
        return {"server": self.server.part}

    def state(self) -> dict[str, Any]:
        """Return what else must survive a restart, as JSON values; a method adds its own."""
        return {"lengths": list(self.lengths)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; checkpoints of 0.1 have no lengths."""
        self.lengths = deque(state.get("lengths", ()), maxlen=WINDOW)

    def outliers(self, found: Sequence[Contribution]) -> dict[int, str]:
        """Return which devices of an exchange are outliers, and why; note what the others' lengths are."""
        out = outliers({c.device: size_of(c) for c in found}, self._usual())
        self.lengths.extend(c.length for c in found if c.device not in out)
        return out

    def outlier(self, one: Contribution, before: Sequence[Size], devices: int) -> str | None:
        """Say why one of so many devices that come in turn is an outlier, beside those before it."""
        why = reason(size_of(one), before, self._usual(), devices=devices)
        if why is None:
            self.lengths.append(one.length)
        return why

    def _usual(self) -> Usual:
        return Usual(math.log(self.run.classes), self.lengths, self.run.cross_entropy)

    def measure_angles(self, uploads: Sequence[Upload]) -> Measured:
        """Return the pairwise angles at the server's present weights, at the price of a pass each."""
        rows = torch.empty_like(self.server.rows(len(uploads)))  # the round's own may be there already
        ordered = sorted(uploads, key=lambda upload: upload.device)
        for row, upload in zip(rows, ordered, strict=True):
            self.server.first_order(upload, out=row)
        return Measured([upload.device for upload in ordered], pairwise_angles(rows))


class Parallel(Strategy):
    """One shared server-side model: a gradient for every device at the same weights, then one update."""

    one_step: ClassVar[bool] = True
    side_by_side: ClassVar[bool] = True
    measures = True  # whether the angles of this exchange are wanted, or cheap

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Compute every device's contribution as it arrives, leave outliers out, and combine."""
        self.measures = measure or len(exchange.devices) <= CHEAP
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
        """Combine all but the outliers, in ascending device id, and answer these with a zero gradient."""
        skipped = self.outliers([arrived[device] for device in exchange.devices if device in arrived])
        good = [i for i, d in enumerate(exchange.devices) if d in arrived and d not in skipped]
        contributions = [arrived[exchange.devices[i]] for i in good]
        replies = {device: nothing(arrived[device].upload) for device in skipped}
        if not contributions:
            return Outcome(replies, {}, skipped)
        gradients = rows if len(good) == len(rows) else rows[good]
        if self.run.robust == "clip":
            gradients = clipped(gradients)
        try:
            outcome = combine(contributions, gradients)
        except StepRefused as refused:
            outcome = refused.outcome(contributions)
        else:
            self.server.running.update([contribution.statistics for contribution in contributions])
        return replace(
            outcome, replies={**replies, **outcome.replies}, skipped={**skipped, **outcome.skipped}
        )

    @abstractmethod
    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Update the server and answer the devices; row i of `gradients` (S, d) is contribution i's."""

    def reduce(
        self, gradients: Tensor, contributions: Sequence[Contribution], rows: Sequence[int] | None = None
    ) -> Tensor:
        """Return the server's gradient of the round's loss, which these rows, or all, are in."""
        rows = range(len(contributions)) if rows is None else rows
        if isinstance(self.server, SketchedServerModel):
            whole, _ = self.server.reduced([contributions[row] for row in rows])
            assert whole is not None
            return whole
        if self.run.reduction == "mean":
            return self.mean(gradients, rows)
        if self.run.reduction == "sum" and self.estimates:
            return self.mean(gradients, rows).mul_(len(rows))
        if self.run.reduction == "sum":
            return sum_of_rows(gradients, rows)
        devices = [contributions[row].device for row in rows]
        total = torch.zeros_like(gradients[0])
        for row, device in zip(rows, devices, strict=True):
            total.add_(gradients[row], alpha=1 / self.divisor(device, devices))
        return total

    @property
    def estimates(self) -> bool:
        """Whether a robust estimate is taken where a mean over devices was."""
        return self.run.robust in ("median", "trimmed")

    def mean(self, gradients: Tensor, rows: Sequence[int]) -> Tensor:
        """Return the mean of these rows, or the robust estimate in its place."""
        if self.estimates:
            return typical(gradients, rows, self.run.robust, self.run.robust_trim)
        return mean_of_rows(gradients, rows)

    def update(self, round: int, gradient: Tensor, members: Sequence[Contribution]) -> None:
        """Take the server's step on a gradient that these devices are in, if it leaves finite weights."""
        if not self.server.step(round, gradient):
            raise StepRefused(members)

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


class StepRefused(Exception):
    """The server's step was not taken: it would have left weights that are not finite."""

    def __init__(self, members: Sequence[Contribution]) -> None:
        super().__init__("the server's step would have left weights that are not finite")
        self.members = members

    def outcome(self, contributions: Sequence[Contribution]) -> Outcome:
        """Return a round without a step: nobody learns, and who was in it is named, longest first."""
        named = sorted(self.members, key=lambda c: -c.length)
        skipped = {c.device: refused(c) for c in named}
        others = [c for c in contributions if c.device not in skipped]
        return Outcome({c.device: nothing(c.upload) for c in contributions}, losses_of(others), skipped)


def refused(contribution: Contribution) -> str:
    """Say why a device is skipped whose gradient was in a step that was not taken."""
    length = f"its gradient has length {contribution.length:.3g}"
    return f"the server's step would have left weights that are not finite, and {length}"


def step_alone(server: ServerModel, round: int, contribution: Contribution) -> str | None:
    """Take a step on one device's gradient alone; where it cannot be taken, say why."""
    if not server.step(round, contribution.gradient):
        return refused(contribution)
    server.running.update([contribution.statistics])
    return None
