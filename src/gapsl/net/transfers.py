"""Halves that devices have brought to be averaged: on disk before anybody relies on them.

A device that has brought its half and been told so may have forgotten it when this process is killed, so a
contribution is a file, and the mean is computed from the files whenever it is asked for.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gapsl.errors import InputError
from gapsl.files import fsync_folder, write_json
from gapsl.halves import average
from gapsl.net import wire_pb2 as wire
from gapsl.net.errors import WireError

KEPT = 4  # transfers of a run; all but the newest are over, or of a past that the run has left
POLL = 0.2  # seconds between two looks at whether the one who waits is still there

Weights = Mapping[int, float]


class Transfers:
    """The transfers of all runs, a folder each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._means: dict[Path, dict[str, Tensor]] = {}  # of the newest transfers

    def open(self, run: str, transfer: str, weights: Weights) -> Transfer:
        """Return a transfer, the same for all who name it."""
        for part in (run, transfer):
            if not part or len(part) > 100 or not part.replace("-", "").isalnum():
                raise WireError(wire.MALFORMED, f"{part[:100]!r} is no name of a run or a transfer")
        if not weights or not all(0 < weight < float("inf") for weight in weights.values()):
            raise WireError(wire.MALFORMED, "weights are positive numbers, at least one")
        found = Transfer(self._folder / run / transfer, dict(sorted(weights.items())), self)
        with self._changed:
            found.begin()
            self._tidy(self._folder / run)
        return found

    def _tidy(self, run: Path) -> None:
        transfers = sorted((path for path in run.iterdir() if path.is_dir()), key=lambda p: p.stat().st_mtime)
        for old in transfers[:-KEPT]:
            self._means.pop(old, None)
            shutil.rmtree(old, ignore_errors=True)

    def added(self) -> None:
        """Wake those who wait for a mean."""
        with self._changed:
            self._changed.notify_all()

    def mean(self, transfer: Transfer, alive: Callable[[], bool]) -> dict[str, Tensor] | None:
        """Return the mean when all have contributed; None if the one who waits has gone."""
        with self._changed:
            while not transfer.complete:
                if not alive():
                    return None
                self._changed.wait(POLL)
            if transfer.folder not in self._means:
                self._means[transfer.folder] = transfer.average()
            return self._means[transfer.folder]


class Transfer:
    """One averaging: who contributes with which weight, and what has arrived."""

    def __init__(self, folder: Path, weights: Weights, transfers: Transfers) -> None:
        self.folder, self.weights, self._transfers = folder, weights, transfers

    def begin(self) -> None:
        """Start it, or check that it is the one that was started."""
        path = self.folder / "weights.json"
        content = {str(device): weight for device, weight in self.weights.items()}
        if path.exists():
            if json.loads(path.read_text(encoding="utf-8")) != content:
                raise WireError(wire.MALFORMED, "other weights than another device has named for it")
            os.utime(self.folder)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, content)

    @property
    def complete(self) -> bool:
        """Whether everybody has contributed."""
        return all(self._file(device).exists() for device in self.weights)

    def add(self, device: int, half: dict[str, Tensor]) -> None:
        """Store a device's half."""
        draft = self.folder / f".draft-{device}-{time.monotonic_ns()}"
        try:
            save_file(half, draft)
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            draft.replace(self._file(device))
            fsync_folder(self.folder)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise InputError(f"cannot write {self._file(device)}: {error}; make room") from None
        self._transfers.added()

    def average(self) -> dict[str, Tensor]:
        """Return the weighted mean, added in ascending order of the devices."""
        halves = [StoredHalf(self._file(device)) for device in self.weights]
        first = halves[0].shapes()
        for half in halves[1:]:
            if half.shapes() != first:
                raise WireError(wire.MALFORMED, "halves of different models cannot be averaged")
        return average(halves, list(self.weights.values()))

    def _file(self, device: int) -> Path:
        return self.folder / f"device-{device:04d}.safetensors"


class StoredHalf(Mapping[str, Tensor]):
    """A half on disk, read tensor by tensor."""

    def __init__(self, path: Path) -> None:
        self._file = safe_open(path, framework="pt")

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.keys())  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self._file.keys())  # type: ignore[no-untyped-call]

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return what tensors there are."""
        slices = {name: self._file.get_slice(name) for name in self}  # type: ignore[no-untyped-call]
        return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
