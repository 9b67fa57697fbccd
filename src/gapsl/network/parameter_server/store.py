"""Client-side models that devices have brought to be averaged: on disk before anybody relies on them.

A device that has brought its model and been told so may have forgotten it when this process is killed, so a
contribution is a file, and the mean is computed from the files whenever it is asked for. Every device has a
folder of its own with so many models and no more: what one brought, nobody else can push out.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from gapsl.common.errors import Unavailable
from gapsl.common.tensors import CANNOT_STORE, place_tensors, remove
from gapsl.models.part import average
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError

KEPT = 4  # models of a device in a run; all but the newest are over, or of a past that the run has left
RUNS = 16  # runs of which a device's models are kept: those it came for last
MEANS = 4  # in memory, of all runs together
RESERVED = "__metadata__"  # what the format calls something else than a tensor
POLL = 0.2  # seconds between two looks at whether the one who waits is still there

Weights = Mapping[int, float]


class Transfers:
    """The transfers of all runs."""

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda text: None) -> None:
        self._folder, self._tell = folder, tell
        self._changed = threading.Condition()
        self._means: dict[tuple[str, str], dict[str, Tensor]] = {}  # the one asked for last is the last

    def open(self, run: str, transfer: str, weights: Weights) -> Transfer:
        """Return a transfer, the same for all who name it with the same weights."""
        for part in (run, transfer):
            if len(part) > 100 or not part.isascii() or not part.replace("-", "").isalnum():
                raise WireError(wire.MALFORMED, f"{part[:100]!r} is no name of a run or a transfer")
        if not weights or not all(0 < weight < float("inf") for weight in weights.values()):
            raise WireError(wire.MALFORMED, "weights are positive numbers, at least one")
        return Transfer(self._folder, run, transfer, dict(sorted(weights.items())))

    def add(self, transfer: Transfer, device: int, model: dict[str, Tensor]) -> None:
        """Store a device's model, and wake those who wait for the mean."""
        transfer.write(device, model)
        with self._changed:
            with suppress(FileNotFoundError):  # other runs of the device's have come since, and pushed it out
                tidy(transfer.file(device))
            self._changed.notify_all()

    def mean(self, transfer: Transfer, alive: Callable[[], bool]) -> dict[str, Tensor] | None:
        """Return the mean when all have contributed; None if the one who waits has gone."""
        with self._changed:
            while transfer.key not in self._means and not transfer.complete:
                if not alive():
                    return None
                self._changed.wait(POLL)
            found = self._means.pop(transfer.key, None)
            if found is None:
                found = transfer.average()
                self._tell(f"{transfer}: the mean of {len(transfer.weights)} is done")
            self._means[transfer.key] = found
            for old in list(self._means)[:-MEANS]:
                del self._means[old]
            return found


@dataclass(frozen=True)
class Transfer:
    """One averaging: who contributes with which weight, and what has arrived."""

    folder: Path  # of all transfers
    run: str
    name: str
    weights: Weights  # in ascending order of the devices

    def __str__(self) -> str:
        """Return what the log calls it."""
        return f"run {self.run[:12]}, transfer {self.name}"

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others.

        Names can be guessed, so the weights are part of it: whoever comes first with others has opened
        another transfer, and is in nobody's way.
        """
        weights = ";".join(f"{device}:{float(weight).hex()}" for device, weight in self.weights.items())
        return self.run, f"{self.name}-{hashlib.sha256(weights.encode()).hexdigest()[:32]}"

    @property
    def complete(self) -> bool:
        """Whether everybody has contributed."""
        return all(self.file(device).exists() for device in self.weights)

    def file(self, device: int) -> Path:
        """Return where the model of a device is, or will be."""
        run, name = self.key
        return self.folder / f"device-{device:04d}" / run / f"{name}.safetensors"

    def write(self, device: int, model: dict[str, Tensor]) -> None:
        """Write a device's model, whole or not at all."""
        file = self.file(device)
        try:
            place_tensors(file, model)
        except CANNOT_STORE as error:
            raise Unavailable(f"cannot write {file}: {error}; make room") from None

    def average(self) -> dict[str, Tensor]:
        """Return the weighted mean, added in ascending order of the devices."""
        models: dict[int, StoredModel] = {}
        for device in self.weights:
            try:
                models[device] = StoredModel(self.file(device))
            except CANNOT_STORE as error:
                raise WireError(
                    wire.STOPPED, f"the model of device {device} cannot be read: {error}"
                ) from None
        odd = odd_ones({device: model.kind() for device, model in models.items()})
        if odd:  # no fault of those who wait, so they may try again: the odd ones may bring another model
            raise WireError(
                wire.STOPPED,
                "client-side models of different shapes cannot be averaged; not like most others: "
                f"{', '.join(f'device {device}' for device in odd)}",
            )
        return average(list(models.values()), list(self.weights.values()))


class StoredModel(Mapping[str, Tensor]):
    """A client-side model on disk, read tensor by tensor."""

    def __init__(self, path: Path) -> None:
        self._file = safe_open(path, framework="pt")

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.keys())  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._file.keys())  # type: ignore[no-untyped-call]

    def kind(self) -> Hashable:
        """Return what tensors there are: equal for all of one model."""
        slices = {name: self._file.get_slice(name) for name in self}  # type: ignore[no-untyped-call]
        return frozenset((name, part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items())


def odd_ones(kinds: Mapping[int, Hashable]) -> list[int]:
    """Return the devices that are not like most others; all where there is no such majority."""
    groups: dict[Hashable, list[int]] = {}
    for device, kind in kinds.items():
        groups.setdefault(kind, []).append(device)
    most = max(groups.values(), key=len)
    return [device for device in kinds if 2 * len(most) <= len(kinds) or device not in most]


def tidy(model: Path) -> None:
    """Remove what a device does not need since this model: old ones of its run, and runs of long ago."""
    for newest, kept in ((model, KEPT), (model.parent, RUNS)):
        ages: dict[Path, int] = {}
        for path in newest.parent.iterdir():
            with suppress(FileNotFoundError):  # a draft of another visit has become a model
                ages[path] = path.stat().st_mtime_ns
        # After all others in its folder: a clock that was put back would say that it is old.
        now = max(time.time_ns(), 1 + max((age for path, age in ages.items() if path != newest), default=0))
        os.utime(newest, ns=(now, now))
        for old in sorted(ages.keys() - {newest}, key=ages.__getitem__)[: 1 - kept]:
            remove(old)
