"""What crosses the cut: a device's upload and the server's reply, and who takes part when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor

NO_LABEL = -1  # of a probe, where it goes among the rows of a batch


@dataclass(frozen=True)
class DeviceInfo:
    """What the server knows of a device before training: how much data it has, and of which classes."""

    samples: int
    label_counts: tuple[int, ...]
    batches_per_pass: int  # mini-batches in one pass over its data


@dataclass(frozen=True)
class Exchange:
    """One step across the cut: these devices send, the server answers."""

    devices: tuple[int, ...]
    turn: int = 0  # counts the exchanges of one round
    learn: bool = True  # False: client-side models stay as they are, and no reply is due
    proposes: bool = False  # they send what a step along their gradient would do to the probes, and no batch
    hand_over: tuple[int, int] | None = None  # before it, the client-side model moves from one to another


@dataclass(frozen=True)
class Upload:
    """A device's activations at the cut with their labels: (b, ...) and (b,), and those of its probes."""

    device: int
    round: int
    turn: int
    activations: Tensor
    labels: Tensor
    probes: Tensor | None = None  # (p, ...): what it makes of the round's probes; None: there are none

    @classmethod
    def unpack(
        cls, device: int, round: int, turn: int, rows: Tensor, labels: Tensor, probes: int = 0
    ) -> Upload:
        """Make an upload of one tensor, as it is sent: the last rows are the probes', if there are any."""
        if probes == 0:
            return cls(device, round, turn, rows, labels)
        return cls(device, round, turn, rows[:-probes], labels[: len(rows) - probes], rows[-probes:])

    def pack(self) -> tuple[Tensor, Tensor]:
        """Return activations and labels with the probes as last rows, which have no label."""
        if self.probes is None:
            return self.activations, self.labels
        unlabelled = self.labels.new_full((len(self.probes),), NO_LABEL)
        return torch.cat([self.activations, self.probes]), torch.cat([self.labels, unlabelled])

    @property
    def rows(self) -> int:
        """The rows of one tensor with all of it."""
        return len(self.activations) + (0 if self.probes is None else len(self.probes))

    @property
    def nbytes(self) -> int:
        """The bytes it takes to send this, a label for every row."""
        found = self.activations.nbytes + self.labels.nbytes
        if self.probes is None:
            return found
        return found + self.probes.nbytes + len(self.probes) * self.labels.element_size()


@dataclass(frozen=True)
class Reply:
    """The gradient at the cut that goes back to a device; `step` False tells it to skip its step."""

    gradient: Tensor
    step: bool = True
    pull: Tensor | None = None  # the gradient at its probes, or how far it is from the leader there

    @classmethod
    def unpack(cls, rows: Tensor, step: bool, probes: int = 0) -> Reply:
        """Make a reply of one tensor, as it is sent: the last rows are the probes', if there are any."""
        return cls(rows[:-probes], step, rows[-probes:]) if probes else cls(rows, step)

    def pack(self) -> Tensor:
        """Return the gradient with the pull as its last rows."""
        return self.gradient if self.pull is None else torch.cat([self.gradient, self.pull])

    @property
    def nbytes(self) -> int:
        """The bytes it takes to send this."""
        return self.gradient.nbytes + (0 if self.pull is None else self.pull.nbytes)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Whom a method chose in a round, and by what: the leader (LGI), and the devices in the loss (GDA)."""

    leader: Annotated[tuple[int, ...], "the devices the leader gradient is the mean of"]
    kept: Annotated[tuple[int, ...], "the devices in the round's loss"]
    scores: Annotated[Mapping[int, float], "by device: mean angle to the others, in radians"]
    lead_angles: Annotated[Mapping[int, float], "by device: angle to the leader gradient, in radians"]
    dispersion: Annotated[float | None, "standard deviation of the scores"] = None
    ratio: Annotated[float | None, "share of devices in the leader"] = None
    threshold: Annotated[float | None, "largest angle to the leader of a device that is kept"] = None
    penalty: Annotated[Mapping[int, float], "by kept device: its regulariser, weight * (1 - cos)"] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """How far the devices agree on the probes of a round."""

    apart: Annotated[float | None, "root mean square distance from the leader, relative to its length"] = None
    scores: Annotated[Mapping[int, float], "by device: mean angle to the others there, in radians"] = field(
        default_factory=dict
    )
    leaders: Annotated[tuple[int, ...] | None, "the devices that lead there; none: all"] = None


@dataclass(frozen=True)
class Outcome:
    """What a strategy made of one exchange."""

    replies: Mapping[int, Reply]
    losses: Mapping[int, float]  # L_i by device, before any regulariser
    skipped: Mapping[int, str] = field(default_factory=dict)  # devices left out as outliers, and why
    angles: Tensor | None = None  # theta_ij between the devices in `losses`, ascending; None: not measured
    selection: Selection | None = None  # whom the method chose, if it does
    probes: ProbeRecord | None = None  # how far devices agree on the probes, if there are any
    details: Mapping[str, Any] = field(default_factory=dict)  # what else its record says, as JSON values
