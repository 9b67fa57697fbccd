"""What the server has to know of its devices after a restart: their data, and which of their states count.

A stretch of a run between two rollbacks is a generation. Under a policy that does not wait for everybody, a
second attempt at a round differs from the first, so a state is known by its round and its generation.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.common.files import write_json
from gapsl.device.exchange import DeviceInfo
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.errors import WireError

MOST_TESTS = 1_000_000  # samples of its own that a device is evaluated with, batch by batch


@dataclass
class Generations:
    """The generations of a run, oldest first."""

    begun: list[tuple[int, int]] = field(default_factory=list)  # generation, and the round it began from

    @property
    def current(self) -> int:
        """The generation that the run is in; 0 before the first."""
        return self.begun[-1][0] if self.begun else 0

    def begin(self, round: int) -> int:
        """Start another generation from a round, and return it."""
        self.begun.append((secrets.randbits(62) + 1, round))
        return self.current

    def restorable(self, stored: Iterable[wire.Stored]) -> set[int]:
        """Return the rounds that a device with these checkpoints can go back to; the start always is one."""
        return {0, *(found.round for found in stored if self._has(found.round, found.generation))}

    def _has(self, round: int, generation: int) -> bool:
        known = [name for name, _ in self.begun]
        if generation not in known:
            return False
        later = self.begun[known.index(generation) + 1 :]
        return all(round <= begun for _, begun in later)


class FleetState:
    """Kept in the file `fleet.json` of the run's folder, or in memory alone where there is none."""

    def __init__(
        self,
        path: Path | None,
        names: tuple[str, ...],
        labels: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        self._path, self._names = path, names
        self._labels = labels or {}  # how many of each class devices have, where the server knows it itself
        self._tests: dict[int, int] = {}  # samples of its own that each device is tested with
        self.generations = Generations()
        self.devices: dict[int, DeviceInfo] = {}
        self.stored = 0  # a round after which the server has had a checkpoint
        self._kept = False  # before the run begins a device may think better of its data
        if path is not None and path.exists():
            self._read(path)

    def begin(self, round: int) -> None:
        """Start another generation; it is on disk before any device hears of it."""
        self.generations.begin(round)
        self.stored = round
        self._write()

    def checkpoint_written(self, round: int) -> None:
        """Take note that the server has a checkpoint after a round."""
        self.stored = round
        self._write()

    def check(self, device: int, ready: wire.Ready, contract: TensorContract) -> None:
        """Refuse a device whose data cannot be, or are not those it had when the run began."""
        counts, classes = tuple(ready.label_counts), contract.classes
        if not counts and contract.features:  # which classes a device has is for itself to know
            counts = (ready.samples,) + (0,) * (classes - 1)
        if len(counts) != classes or min(counts) < 0 or sum(counts) != ready.samples or not ready.samples:
            raise WireError(wire.MALFORMED, f"{ready.samples} samples of {len(counts)} classes cannot be")
        if ready.batches_per_pass != -(-ready.samples // (contract.rows - contract.probes)):
            raise WireError(wire.MALFORMED, f"{ready.batches_per_pass} mini-batches a pass cannot be")
        if not 0 <= ready.test_samples <= MOST_TESTS:
            raise WireError(wire.MALFORMED, f"{ready.test_samples} test samples cannot be")
        share = self._labels.get(device, counts)
        if sum(share) != ready.samples or (ready.label_counts and counts != share):
            raise WireError(
                wire.OTHER_DATA,
                f"its data are not the {sum(share)} samples that the run's partition gives it; install the "
                "same gapsl and dataset at the device",
            )
        known = self.devices.get(device) if self._kept else None
        if known is not None and known != info_of(ready):
            raise WireError(
                wire.OTHER_DATA,
                f"the data are not those that the run began with ({ready.samples} samples, {known.samples} "
                "then); give the device its data back, or start a new run",
            )
        tests = self._tests.get(device, ready.test_samples) if self._kept else ready.test_samples
        if tests != ready.test_samples:
            raise WireError(
                wire.OTHER_DATA,
                f"the device is tested with {ready.test_samples} samples, and was with {tests} when the run "
                "began; give it its data back, or start a new run",
            )
        self.devices[device], self._tests[device] = info_of(ready), ready.test_samples

    def keep(self) -> None:
        """Write down what is known of the devices."""
        self.devices, self._kept = dict(sorted(self.devices.items())), True
        self._write()

    def _read(self, path: Path) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            names, begun = tuple(found["names"]), [(int(g), int(r)) for g, r in found["generations"]]
            self.devices = {
                int(device): DeviceInfo(info["samples"], tuple(info["labels"]), info["batches"])
                for device, info in found["devices"].items()
            }
            known = {int(device): info.get("tests") for device, info in found["devices"].items()}
            self._tests = {device: int(tests) for device, tests in known.items() if tests is not None}
            self.stored = int(found.get("stored", 0))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is damaged: {error}; restore it, or start a new run") from None
        if names != self._names:
            raise InputError(
                f"the run began with the devices {', '.join(names)}, not {', '.join(self._names)}; "
                "list the same ones in the same order"
            )
        self.generations, self._kept = Generations(begun), bool(self.devices)

    def _write(self) -> None:
        if self._path is not None:
            devices = {
                device: {
                    "samples": i.samples,
                    "labels": i.label_counts,
                    "batches": i.batches_per_pass,
                    **({"tests": self._tests[device]} if device in self._tests else {}),
                }
                for device, i in self.devices.items()
            }
            content = {
                "names": self._names,
                "generations": self.generations.begun,
                "devices": devices,
                "stored": self.stored,
            }
            write_json(self._path, content)


def last_checkpoint_of(path: Path) -> int:
    """Return a round after which a server has had a checkpoint, as its file says; 0: none is known of."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["stored"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # what is wrong with the file is said by whoever needs it


def info_of(ready: wire.Ready) -> DeviceInfo:
    """Return what a device says of its data."""
    return DeviceInfo(ready.samples, tuple(ready.label_counts), ready.batches_per_pass)


class Rollbacks:
    """Devices that went back since the last record, and the round they went back to: a replay repeats it."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # before their upload
        self._between: dict[int, int] = {}  # after their upload, before client-side models were averaged
        self._after: dict[int, int] = {}  # after that
        self._averaged = False  # whether client-side models are averaged already in this round

    def add(self, device: int, round: int, *, uploaded: bool) -> None:
        """Take note of a device, whose upload of the round is here or not.

        Those without an upload take part in an averaging, too: after it they have something to lose.
        """
        (self._after if uploaded or self._averaged else self._before)[device] = round

    def averaging(self) -> None:
        """Take note that client-side models are averaged now: who has gone back takes part as it is."""
        self._between |= self._after
        self._after, self._averaged = {}, True

    def drain(self) -> dict[str, dict[int, int]]:
        """Return them by when they went back, and begin anew."""
        found = {"before": self._before, "between": self._between, "after": self._after}
        self._before, self._between, self._after, self._averaged = {}, {}, {}, False
        return found

    @property
    def devices(self) -> Collection[int]:
        """All of them."""
        return self._before.keys() | self._between.keys() | self._after.keys()


def without_checkpoints(restorable: Mapping[int, set[int]], rounds: Collection[int]) -> list[int]:
    """Return the devices with which a run that has these checkpoints would begin anew.

    They have none of them, or, where none is common to all, lack the newest.
    """
    trained = set(rounds) - {0}
    has = {device: found & trained for device, found in restorable.items()}
    if not trained or set.intersection(*has.values()):
        return []
    without = [device for device, found in has.items() if not found]
    return without or [device for device, found in has.items() if max(trained) not in found]


def lacks_checkpoints(rounds: Collection[int]) -> WireError:
    """Return why such a device is refused."""
    known = ", ".join(str(round) for round in sorted(set(rounds) - {0}))
    return WireError(
        wire.OTHER_DATA,
        f"of the run's checkpoints (after round {known}) none that all have is in its folder; start it with "
        "the --state that it had. If it was away while the run did not wait for it, serve with --closing "
        "fraction:SHARE or deadline:SECONDS again; or start a new run",
    )
