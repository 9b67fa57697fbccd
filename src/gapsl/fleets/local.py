"""The fleet in this process: every device an object, every message a function call.

A second one repeats what happened to another fleet: who was missing, and who went back.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gapsl.common.clock import Clock, timed
from gapsl.device.device import Device
from gapsl.device.exchange import DeviceInfo, Exchange, Reply, Upload
from gapsl.device.label_private import LabelPrivateDevice
from gapsl.fleets.base import EvaluationInputs, FleetEvents, Split, Traffic, Whose
from gapsl.models.device_files import read_devices, write_devices
from gapsl.models.part import average, model_bytes, weights_of


class LocalFleet:
    """Devices simulated one after another in this process.

    They take turns, but no result depends on it: every device has its own model, optimizer and random
    streams, and the strategy sorts what arrives by device.
    """

    merges = True  # client-side models, and not heads

    def __init__(
        self,
        devices: Mapping[int, Device],
        infos: Mapping[int, DeviceInfo],
        sets: Mapping[Split, EvaluationInputs],
        *,
        counts_traffic: bool = True,
    ) -> None:
        self._devices = dict(sorted(devices.items()))
        self.devices = dict(sorted(infos.items()))
        self._sets = sets
        self._counts = counts_traffic
        self.clock = Clock()
        self.traffic = Traffic(dict.fromkeys(self.devices, 0), dict.fromkeys(self.devices, 0))

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Run each device's forward when the server is ready for it."""
        for id in exchange.devices:
            with timed(self.clock.of(id), "forward"):
                upload = self._devices[id].answer(round, exchange)
            self._count(id, sent=upload.nbytes)
            yield upload

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Run each device's backward."""
        for id, reply in sorted(replies.items()):
            self._count(id, received=reply.nbytes)
            with timed(self.clock.of(id), "backward"):
                self._devices[id].backward(round, reply)

    def average(self, weights: Mapping[int, float]) -> None:
        """Average the client-side models and give the result to every device."""
        merged = self._merged(weights)
        for id, device in self._devices.items():
            size = model_bytes(device.part.model)
            self._count(id, sent=size if id in weights else 0, received=size)
            device.part.model.load_state_dict(merged)

    def hand_over(self, source: int, target: int) -> None:
        """Copy a device's weights to another."""
        giver, taker = self._devices[source].part.model, self._devices[target].part.model
        taker.load_state_dict(giver.state_dict())
        self._count(source, sent=model_bytes(giver))
        self._count(target, received=model_bytes(giver))

    def evaluate(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Run an evaluation set through one client-side model."""
        device = self._devices[whose if isinstance(whose, int) else min(whose)]
        model = device.part.model
        if not isinstance(whose, int):
            model = copy.deepcopy(model)
            model.load_state_dict(self._merged(whose))
        yield from device.activations(self._sets[split](), model)

    @property
    def label_private(self) -> bool:
        """Whether devices have the last layer."""
        return any(isinstance(device, LabelPrivateDevice) for device in self._devices.values())

    def head_loss(self, device: int, features: Tensor) -> tuple[float, Tensor]:
        """Let a device's head compute the loss."""
        with timed(self.clock.of(device), "forward"):
            loss, gradient = self._label_private(device).head_loss(features)
        self._count(device, sent=gradient.nbytes, received=features.nbytes)
        return loss, gradient

    def head_logits(self, device: int, features: Tensor) -> Tensor:
        """Let a device's head compute the logits."""
        return self._label_private(device).head_logits(features)

    def _label_private(self, id: int) -> LabelPrivateDevice:
        device = self._devices[id]
        assert isinstance(device, LabelPrivateDevice)
        return device

    def drifts(self) -> Mapping[int, float]:
        """Return how far every client-side model is from its start."""
        return {id: device.drift() for id, device in self._devices.items()}

    def save(self, folder: Path, round: int) -> None:
        """Write the devices' files."""
        save(self._devices, folder)

    def load(self, folder: Path, round: int) -> None:
        """Read the devices' files."""
        load(self._devices, folder)

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of every client-side model."""
        return {id: device.digest() for id, device in self._devices.items()}

    def _merged(self, weights: Mapping[int, float]) -> dict[str, Tensor]:
        models = [weights_of(self._devices[id].part.model) for id in sorted(weights)]
        return average(models, [weights[id] for id in sorted(weights)])

    def _count(self, id: int, *, sent: int = 0, received: int = 0) -> None:
        if self._counts:
            self.traffic.add(id, sent=sent, received=received)


def save(devices: Mapping[int, Device], folder: Path) -> None:
    """Write the states of devices."""
    write_devices(folder, {id: device.tensors() for id, device in devices.items()})


def load(devices: Mapping[int, Device], folder: Path) -> None:
    """Read the states of devices."""
    for id, state in read_devices(folder, devices, next(iter(devices.values())).where):
        devices[id].load(state)


class ReplayFleet(LocalFleet):
    """Devices that are missing and go back when the records say so."""

    def __init__(
        self, happened: Mapping[int, FleetEvents], unheard: Collection[int], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._happened, self._unheard = happened, unheard
        self._round = 0
        self._wanted = {
            one
            for found in happened.values()
            for where in (found.restored_before, found.restored_between, found.restored_after)
            for one in where.items()
        }
        self._kept: dict[tuple[int, int], dict[str, Tensor]] = {}
        self._keep()

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Ask those who were there."""
        happened = self._happened.get(round, FleetEvents())
        if round != self._round:
            self._round = round
            self._go_back(happened.restored_before)
        there = tuple(d for d in exchange.devices if exchange.turn not in happened.absent.get(d, ()))
        return super().collect(round, replace(exchange, devices=there))

    def average(self, weights: Mapping[int, float]) -> None:
        """Average client-side models as they were then."""
        self._go_back(self._happened.get(self._round, FleetEvents()).restored_between)
        super().average(weights)

    def dropped(self) -> Collection[int]:
        """Return nobody: who is missing is not asked."""
        return ()

    def drain_events(self) -> FleetEvents:
        """End the round as it ended then."""
        self._go_back(self._happened.get(self._round, FleetEvents()).restored_after)
        self._keep()
        return FleetEvents()

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of the client-side models that were in the digest."""
        return {id: found for id, found in super().digests().items() if id not in self._unheard}

    def _go_back(self, where: Mapping[int, int]) -> None:
        for id, round in where.items():
            self._devices[id].load(self._kept[id, round])

    def _keep(self) -> None:
        for id, round in self._wanted:
            if round == self._round:
                stored = self._devices[id].tensors()
                self._kept[id, round] = {name: tensor.clone() for name, tensor in stored.items()}
