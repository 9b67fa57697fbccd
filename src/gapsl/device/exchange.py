"""What crosses the cut: a device's upload and the server's reply, and who takes part when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


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
    learn: bool = True  # False: the devices' halves stay as they are, and no reply is due
    hand_over: tuple[int, int] | None = None  # before it, the client-side model moves from one to another


@dataclass(frozen=True)
class Upload:
    """A device's activations at the cut with their labels: (b, ...) and (b,)."""

    device: int
    round: int
    turn: int
    activations: Tensor
    labels: Tensor

    @property
    def nbytes(self) -> int:
        """The bytes it takes to send this."""
        return self.activations.nbytes + self.labels.nbytes


@dataclass(frozen=True)
class Reply:
    """The gradient at the cut that goes back to a device; `step` False tells it to skip its step."""

    gradient: Tensor
    step: bool = True

    @property
    def nbytes(self) -> int:
        """The bytes it takes to send this."""
        return self.gradient.nbytes


@dataclass(frozen=True)
class Outcome:
    """What a strategy made of one exchange."""

    replies: Mapping[int, Reply]
    losses: Mapping[int, float]  # L_i by device, before any regulariser
    skipped: tuple[int, ...] = ()  # devices left out because their loss or gradient was not finite
    angles: Tensor | None = None  # theta_ij between the devices in `losses`, ascending; None: not measured
    details: Mapping[str, Any] = field(default_factory=dict)  # the method's own part of the round's record
