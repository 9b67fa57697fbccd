"""A fleet in this process to which happens what happened to another: who was missing, and who went back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from gapsl.device.exchange import Exchange, Upload
from gapsl.fleets.base import FleetEvents
from gapsl.fleets.local import LocalFleet


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
