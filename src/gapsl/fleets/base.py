"""What every fleet promises: the ways in which the server reaches its devices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from torch import Tensor

from gapsl.common.errors import GapslError
from gapsl.common.errors import Rewind as Rewind
from gapsl.common.errors import Stopped as Stopped
from gapsl.device.exchange import DeviceInfo, Exchange, Reply, Upload

Split = Literal["test", "validation"]
Whose = int | Mapping[int, float]  # a device's own half, or the mean of halves with these weights


class Unmeasured(Rewind):
    """No device was there to be evaluated: rounds are done again, and by then somebody may be there."""


class Away(GapslError):
    """A device is not there, and the run does not wait for it."""


@dataclass
class Traffic:
    """Bytes by device since the start of the run, as the device counts them."""

    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)

    def add(self, device: int, *, sent: int = 0, received: int = 0) -> None:
        """Count what one device sent and received."""
        self.sent[device] = self.sent.get(device, 0) + sent
        self.received[device] = self.received.get(device, 0) + received


@dataclass(frozen=True, kw_only=True)
class FleetEvents:
    """What befell devices in a round: who was missing, and who went back to an earlier state of its own."""

    absent: Annotated[
        Mapping[int, tuple[int, ...]], "by device: the turns of the round that were closed without it"
    ] = field(default_factory=dict)
    restored_before: Annotated[
        Mapping[int, int], "devices that went back before their upload, and the round they went back to"
    ] = field(default_factory=dict)
    restored_between: Annotated[
        Mapping[int, int], "those that did after it, before client-side models were averaged"
    ] = field(default_factory=dict)
    restored_after: Annotated[Mapping[int, int], "those that did after that"] = field(default_factory=dict)


class Fleet(Protocol):
    """The devices of a run, wherever they are."""

    traffic: Traffic
    merges: bool  # whether anybody may see the client-side models and average them
    own_tests: bool  # whether devices have test samples of their own

    def dropped(self) -> Collection[int]:
        """Return the devices that have left in the middle of the round."""
        ...

    @property
    def label_private(self) -> bool:
        """Whether devices have the last layer of the model, and keep the labels."""
        ...

    @property
    def devices(self) -> Mapping[int, DeviceInfo]:
        """What is known of each device."""
        ...

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Let the devices of an exchange run to the cut; yields uploads as they arrive."""
        ...

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Let the devices run back from the cut."""
        ...

    def average(self, weights: Mapping[int, float]) -> None:
        """Replace every device's half by the weighted mean, at the parameter server."""
        ...

    def hand_over(self, source: int, target: int) -> None:
        """Move the client-side model from one device to another; optimizers stay."""
        ...

    def evaluate(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Yield the activations of an evaluation set, batch by batch in order, without training.

        Raises Away where the device is not there and is not waited for.
        """
        ...

    def evaluate_own(self, device: int, whose: Whose) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the activations and labels of a device's own test samples, with its own half or another."""
        ...

    def head_loss(self, device: int, features: Tensor) -> tuple[float, Tensor]:
        """Let a device with a head compute the loss of its mini-batch, and its derivative."""
        ...

    def head_logits(self, device: int, features: Tensor) -> Tensor:
        """Let a device with a head compute the logits of an evaluation batch."""
        ...

    def head_correct(self, device: int, batch: int, features: Tensor) -> int:
        """Let a device with a head count its own test samples in a batch, and how many are right."""
        ...

    def drifts(self) -> Mapping[int, float]:
        """Return how far every half is from its start, as each device measures it."""
        ...

    def save(self, folder: Path, round: int) -> None:
        """Store every device's state after a round, in a folder or where the device is."""
        ...

    def checkpoint_written(self, round: int) -> None:
        """Take note that the checkpoint after a round is there, the server's own part, too."""
        ...

    def load(self, folder: Path, round: int) -> None:
        """Restore every device's state after a round."""
        ...

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of every device's half."""
        ...

    def newest_common_checkpoint(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's stored rounds that the devices can go back to, if any."""
        ...

    def drain_events(self) -> FleetEvents:
        """Return what befell devices since it was last asked, for the round's record."""
        ...
