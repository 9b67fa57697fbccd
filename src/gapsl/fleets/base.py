"""What every fleet promises: the ways in which the server reaches its devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gapsl.common.clock import Clock
from gapsl.common.errors import GapslError, Rewind
from gapsl.device.exchange import DeviceInfo, Exchange, Reply, Upload

Split = Literal["test", "validation"]
Whose = int | Mapping[int, float]  # a device's own client-side model, or the mean of some with these weights
EvaluationInputs = Callable[[], Iterator[Tensor]]  # the inputs of an evaluation set, batch by batch


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

    def since(self, before: Traffic) -> Traffic:
        """Return what was counted after an earlier state."""
        return Traffic(
            {device: count - before.sent.get(device, 0) for device, count in self.sent.items()},
            {device: count - before.received.get(device, 0) for device, count in self.received.items()},
        )


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
    """The devices of a run, wherever they are. What only some fleets can do stands in the protocols below."""

    traffic: Traffic
    clock: Clock  # what devices, and the server's passes for each, took since a record was made
    merges: bool  # whether anybody may see the client-side models and average them

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
        """Replace every client-side model by the weighted mean, at the parameter server."""
        ...

    def hand_over(self, source: int, target: int) -> None:
        """Move the client-side model from one device to another; optimizers stay."""
        ...

    def evaluate(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Yield the activations of an evaluation set, batch by batch in order, without training.

        Raises Away where the device is not there and is not waited for.
        """
        ...

    def drifts(self) -> Mapping[int, float]:
        """Return how far every client-side model is from its start, as each device measures it."""
        ...

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of every client-side model."""
        ...

    def save(self, folder: Path, round: int) -> None:
        """Store every device's state after a round, in a folder or where the device is."""
        ...

    def load(self, folder: Path, round: int) -> None:
        """Restore every device's state after a round."""
        ...


@runtime_checkable
class LabelPrivate(Protocol):
    """A fleet whose devices may have the last layer of the model, and keep the labels."""

    @property
    def label_private(self) -> bool:
        """Whether they do in this run."""
        ...

    def head_loss(self, device: int, features: Tensor) -> tuple[float, Tensor]:
        """Let a device's head compute the loss of its mini-batch, and its derivative."""
        ...

    def head_logits(self, device: int, features: Tensor) -> Tensor:
        """Let a device's head compute the logits of an evaluation batch."""
        ...


@runtime_checkable
class OwnTests(Protocol):
    """A fleet whose devices may have test samples of their own."""

    own_tests: bool  # whether they do in this run

    def evaluate_own(self, device: int, whose: Whose) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield activations and labels of a device's own test samples, with its own model or another."""
        ...

    def head_correct(self, device: int, batch: int, features: Tensor) -> int:
        """Let a device's head count how many of a batch of its own test samples are right."""
        ...


@runtime_checkable
class DropOuts(Protocol):
    """A fleet whose devices may be missing in a round, or go back to an earlier state."""

    def dropped(self) -> Collection[int]:
        """Return the devices that this round has lost."""
        ...

    def drain_events(self) -> FleetEvents:
        """Return what befell devices since this was last called, and begin anew."""
        ...


@runtime_checkable
class OwnCheckpoints(Protocol):
    """A fleet whose devices store their state themselves."""

    def newest_common_checkpoint(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's stored rounds that the devices can go back to, if any."""
        ...

    def checkpoint_written(self, round: int) -> None:
        """Take note that the checkpoint after a round is there, the server's own part, too."""
        ...


@runtime_checkable
class Beside(Protocol):
    """A fleet whose devices are in other processes of ours, with a server-side model beside them."""

    def probabilities(
        self, split: Split, count: int, devices: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Let these devices' client-side models and the server's run the first `count` samples of a set."""
        ...

    def finish(self) -> None:
        """End the processes for good."""
        ...


def probabilities(
    server: nn.Module,
    activations: Iterator[Tensor],
    count: int,
    finish: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Run the first `count` samples to the end; `finish` is what the server does not have of the model."""
    found: list[Tensor] = []
    with evaluating(server):
        for batch in activations:
            logits = server(batch) if finish is None else finish(server(batch))
            found.append(logits.cpu().double().softmax(dim=1))
            if sum(map(len, found)) >= count:
                break  # the rest of the set is not asked for
    return torch.cat(found)[:count]


@contextmanager
def evaluating(server: nn.Module) -> Iterator[None]:
    """Let a model that trains evaluate inside."""
    server.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        server.train()
