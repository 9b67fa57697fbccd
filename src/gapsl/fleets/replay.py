"""A fleet in this process to which happens what happened to another: who was missing, and who went back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from gapsl.device.exchange import Exchange, Upload
from gapsl.fleets.local import LocalFleet


@dataclass(frozen=True)
class Happened:
    """What befell the devices in one round."""

    absent: frozenset[tuple[int, int]] = frozenset()  # turn and device
    before: Mapping[int, int] = field(default_factory=dict)  # devices that went back before it, and to where
    between: Mapping[int, int] = field(default_factory=dict)  # those that did before halves were averaged
    after: Mapping[int, int] = field(default_factory=dict)  # and those that did after it


def read_happened(records: Sequence[Mapping[str, Any]]) -> dict[int, Happened]:
    """Return what befell devices, by round, from a run's records."""

    def restored(record: Mapping[str, Any], when: str) -> dict[int, int]:
        return {int(device): round for device, round in record.get(f"restored_{when}", {}).items()}

    return {
        record["round"]: Happened(
            frozenset((turn, device) for turn, device in record.get("absent", ())),
            *(restored(record, when) for when in ("before", "between", "after")),
        )
        for record in records
    }


class ReplayFleet(LocalFleet):
    """Devices that are missing and go back when the records say so."""

    def __init__(
        self, happened: Mapping[int, Happened], unheard: Collection[int], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._happened, self._unheard = happened, unheard
        self._round = 0
        self._wanted = {
            one
            for found in happened.values()
            for where in (found.before, found.between, found.after)
            for one in where.items()
        }
        self._kept: dict[tuple[int, int], dict[str, Tensor]] = {}
        self._keep()

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Ask those who were there."""
        happened = self._happened.get(round, Happened())
        if round != self._round:
            self._round = round
            self._go_back(happened.before)
        there = tuple(d for d in exchange.devices if (exchange.turn, d) not in happened.absent)
        return super().collect(round, replace(exchange, devices=there))

    def average(self, weights: Mapping[int, float]) -> None:
        """Average halves as they were then."""
        self._go_back(self._happened.get(self._round, Happened()).between)
        super().average(weights)

    def happened(self) -> Mapping[str, Any]:
        """End the round as it ended then."""
        self._go_back(self._happened.get(self._round, Happened()).after)
        self._keep()
        return {}

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of the halves that were in the digest."""
        return {id: found for id, found in super().digests().items() if id not in self._unheard}

    def _go_back(self, where: Mapping[int, int]) -> None:
        for id, round in where.items():
            self._devices[id].load(self._kept[id, round])

    def _keep(self) -> None:
        for id, round in self._wanted:
            if round == self._round:
                stored = self._devices[id].tensors()
                self._kept[id, round] = {name: tensor.clone() for name, tensor in stored.items()}
