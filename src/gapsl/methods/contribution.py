"""What passes through the server-side model give for one upload, and who else may compute them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from gapsl.device.exchange import Reply, Upload
from gapsl.methods.batch_norm import Statistics
from gapsl.methods.outliers import Size
from gapsl.models.part import all_finite, length_of

if TYPE_CHECKING:
    from gapsl.methods.server_model import ServerModel

Penalty = Literal["exact", "finite", "none"]
Branches = list[tuple[int, Tensor]]  # parts of a sum of gradients, by one of their devices


@dataclass(frozen=True)
class Contribution:
    """What the server computed for one upload at the round's common weights."""

    upload: Upload
    loss: float  # L_i
    gradient: Tensor  # g_i, flat
    activation_gradient: Tensor  # d L_i / d a_i
    statistics: Statistics
    length: float  # |g_i| as it was computed, whatever a method adds to the gradient later
    finite: bool  # whether loss, gradients and statistics are all numbers

    @classmethod
    def of(
        cls,
        upload: Upload,
        loss: float,
        gradient: Tensor,
        activation_gradient: Tensor,
        statistics: Statistics,
    ) -> Contribution:
        """Return a contribution with its length, and whether all of it is finite."""
        length = length_of(gradient)
        rest = (activation_gradient, *(tensor for pair in statistics for tensor in pair))
        finite = math.isfinite(loss) and math.isfinite(length) and all_finite(*rest)
        return cls(upload, loss, gradient, activation_gradient, statistics, length, finite)

    @property
    def device(self) -> int:
        """The device this was computed for."""
        return self.upload.device


@dataclass(frozen=True)
class Measured:
    """Angles between the gradients of some devices."""

    devices: Sequence[int]
    angles: Tensor

    def among(self, devices: Iterable[int]) -> Tensor:
        """Return the angles between these devices alone, in ascending order."""
        chosen = [self.devices.index(device) for device in sorted(devices)]
        return self.angles[chosen][:, chosen]


@dataclass(frozen=True)
class Halfway:
    """An upload run to the logits, whose way back has to wait for something else."""

    upload: Upload
    loss: float
    last: Tensor  # d L_i / d logits
    statistics: Statistics
    logits: Tensor | None  # None: they are elsewhere
    activations: Tensor  # the leaf that they were computed from

    @property
    def device(self) -> int:
        """The device this was computed for."""
        return self.upload.device

    @property
    def finite(self) -> bool:
        """Whether what came in and what came out are all numbers."""
        return math.isfinite(self.loss) and all_finite(self.activations.detach(), self.last)


class Elsewhere(Protocol):
    """Where passes are computed that are not computed here: beside the devices, in other processes."""

    def contribution(self, passes: ServerModel, upload: Upload) -> Contribution | None:
        """Return what was computed for an upload by a server-side model, if it was."""
        ...

    def halfway(self, passes: ServerModel, upload: Upload) -> Halfway | None:
        """Return how an upload was run to the logits, if it was."""
        ...

    def backwards(self, found: Sequence[Halfway], last: Sequence[Tensor]) -> list[Contribution]:
        """Do what `ServerModel.backwards` does, into the rows that the devices' passes have anyway."""
        ...

    def regularise(
        self, found: Sequence[Contribution], rows: Sequence[Tensor], leader: Tensor, how: Regulariser
    ) -> list[Tensor | None]:
        """Do what `ServerModel.regularise` does."""
        ...

    def branches(
        self,
        found: Sequence[Contribution],
        weights: Sequence[float],
        leader: Tensor | None,
        how: Regulariser | None,
    ) -> tuple[Branches, list[Tensor | None]]:
        """Do what `SketchedServerModel.branches` does."""
        ...


@dataclass(frozen=True)
class Regulariser:
    """How GDA's regulariser is differentiated, and what its derivative is multiplied by."""

    mode: Penalty
    weight: float

    @property
    def changes(self) -> bool:
        """Whether it changes any gradient."""
        return self.weight != 0 and self.mode != "none"


def size_of(contribution: Contribution) -> Size:
    """Return what tells an outlier."""
    return Size(contribution.loss, contribution.length, contribution.finite)


def nothing(upload: Upload) -> Reply:
    """Return the reply to a device that is not in the loss: a zero gradient, and no step."""
    return Reply(torch.zeros_like(upload.activations), step=False)


def losses_of(contributions: Sequence[Contribution]) -> dict[int, float]:
    """Return the devices' losses by device."""
    return {c.device: c.loss for c in contributions}
