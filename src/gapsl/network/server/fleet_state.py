"""What the server has to know of its devices after a restart: their data, and which of their states count.

A stretch of a run between two rollbacks is a generation. Under a policy that does not wait for everybody, a
second attempt at a round differs from the first, so a state is known by its round and its generation.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError

from gapsl.common.errors import InputError
from gapsl.common.files import write_json
from gapsl.common.reading import read_bytes
from gapsl.common.settings import in_words
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
        newest: dict[int, float] = {}  # of each generation, the last round that no later one went back behind
        limit = math.inf
        for generation, begun in reversed(self.begun):
            newest[generation], limit = limit, min(limit, begun)
        return {0, *(found.round for found in stored if 0 < found.round <= newest.get(found.generation, 0))}


class KnownDevice(BaseModel):
    """What a device says of its data, and the newest round that it has stored."""

    samples: int
    labels: tuple[int, ...]
    batches: int
    tests: int | None = None  # samples of its own that it is tested with; files did not always say
    stored: int = 0  # 0: none, or not known


class FleetFile(BaseModel):
    """The file `fleet.json` of a run's folder."""

    names: tuple[str, ...]
    generations: list[tuple[int, int]]
    devices: dict[int, KnownDevice]
    stored: int = 0  # a round after which the server has had a checkpoint


class FleetState:
    """What a server knows of its devices, in its file or, where there is none, in memory alone."""

    def __init__(
        self,
        path: Path | None,
        names: tuple[str, ...],
        labels: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        self._path, self._names = path, names
        self._labels = labels or {}  # how many of each class devices have, where the server knows it itself
        self._known: dict[int, KnownDevice] = {}
        self.generations = Generations()
        self.stored = 0  # a round after which the server has had a checkpoint
        if path is not None and path.exists():
            found = read_fleet(path)
            if found.names != names:
                raise InputError(
                    f"the run began with the devices {', '.join(found.names)}, not {', '.join(names)}; "
                    "list the same ones in the same order"
                )
            self._known, self.stored = found.devices, found.stored
            self.generations = Generations(found.generations)
        self._kept = bool(self._known)  # before the run begins a device may think better of its data

    @property
    def devices(self) -> dict[int, DeviceInfo]:
        """What devices have said of their data."""
        known = sorted(self._known.items())
        return {device: DeviceInfo(one.samples, one.labels, one.batches) for device, one in known}

    def begin(self, round: int) -> None:
        """Start another generation; it is on disk before any device hears of it."""
        self.generations.begin(round)
        for device in self._known:
            if self.newest_of(device) > round:
                self.saved(device, 0)  # whether it has an older one is not known
        self.checkpoint_written(round)

    def checkpoint_written(self, round: int) -> None:
        """Take note that the server has a checkpoint after a round."""
        self.stored = round
        self._write()

    def saved(self, device: int, round: int) -> None:
        """Take note of the newest round that a device has stored; it is written with the next checkpoint."""
        self._known[device] = self._known[device].model_copy(update={"stored": round})

    def newest_of(self, device: int) -> int:
        """Return the newest round that a device has stored; 0: none is known of."""
        return self._known[device].stored if device in self._known else 0

    def begins_anew(self, device: int, *, fresh: bool) -> int:
        """Take note that a device begins anew; if that is not on purpose, return the round it has lost."""
        had = 0 if fresh else self.newest_of(device)
        if not had and device in self._known:
            self.saved(device, 0)
        return had

    def keep(self) -> None:
        """Write down what is known of the devices."""
        self._kept = True
        self._write()

    def restorable(self, ready: wire.Ready | None) -> set[int]:
        """Return the rounds that a device can go back to, by what it said when it joined."""
        return self.generations.restorable(ready.stored if ready is not None else ())

    def counted(
        self, joined: Mapping[int, wire.Ready | None], rounds: Collection[int]
    ) -> dict[int, set[int]]:
        """Return what devices can go back to, without those that have nothing and begin afresh."""
        found = {device: self.restorable(ready) for device, ready in joined.items()}
        fresh = {device for device, ready in joined.items() if ready is not None and ready.fresh}
        return {
            device: has for device, has in found.items() if device not in fresh or has & set(rounds) - {0}
        }

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
        said = KnownDevice(
            samples=ready.samples,
            labels=tuple(ready.label_counts),
            batches=ready.batches_per_pass,
            tests=ready.test_samples,
            stored=self.newest_of(device),
        )
        known = self._known.get(device, said) if self._kept else said
        if (known.samples, known.labels, known.batches) != (said.samples, said.labels, said.batches):
            raise WireError(
                wire.OTHER_DATA,
                f"the data are not those that the run began with ({said.samples} samples, {known.samples} "
                "then); give the device its data back, or start a new run",
            )
        if known.tests not in (None, said.tests):
            raise WireError(
                wire.OTHER_DATA,
                f"the device is tested with {said.tests} samples, and was with {known.tests} when the run "
                "began; give it its data back, or start a new run",
            )
        self._known[device] = said

    def _write(self) -> None:
        if self._path is not None:
            content = FleetFile(
                names=self._names,
                generations=self.generations.begun,
                devices=dict(sorted(self._known.items())),
                stored=self.stored,
            )
            write_json(self._path, content.model_dump(exclude_none=True))


def read_fleet(path: Path) -> FleetFile:
    """Read the file, or say what to do about one that is damaged."""
    try:
        return FleetFile.model_validate_json(read_bytes(path))
    except (OSError, ValidationError) as error:
        why = in_words(error.errors()[0]) if isinstance(error, ValidationError) else error.strerror
        raise InputError(f"{path} is damaged: {why}; restore it, or start a new run") from None


def last_checkpoint_of(path: Path) -> int:
    """Return a round after which a server has had a checkpoint, as its file says; 0: none is known of."""
    try:
        return read_fleet(path).stored
    except InputError:
        return 0  # what is wrong with the file is said by whoever needs it


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
    if not trained or not has or set.intersection(*has.values()):
        return []
    without = [device for device, found in has.items() if not found]
    return without or [device for device, found in has.items() if max(trained) not in found]


def lacks_checkpoints(rounds: Collection[int], *, common: bool) -> WireError:
    """Return why a device is refused that has none of these checkpoints, or none that all have in common."""
    known = ", ".join(str(round) for round in sorted(set(rounds) - {0}))
    which, more = "none is", ""
    if common:
        which = "none that all have is"
        more = (
            ". If it was away while the run did not wait for it, serve with the --closing of that time again"
        )
    return WireError(
        wire.OTHER_DATA,
        f"of the run's checkpoints (after round {known}) {which} in its folder; start it with the "
        f"--state that it had. If that is lost, let it begin from the start: gapsl join --fresh{more}",
    )
