"""What a page shows of a run's records, read once and then read on: columns of numbers and byte offsets."""

from __future__ import annotations

import math
import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gapsl.common.errors import InputError
from gapsl.common.reading import open_file
from gapsl.dashboard.downsample import Numbers, Trace, mean_of
from gapsl.run.records import MEASURES, Angles, ByDevice, Evaluation, RoundRecord

PHASES = ("collect", "server", "deliver", "move", "evaluate")
AXES = ("round", "epoch", "bytes", "seconds")
OF_ROUNDS = (*AXES, "loss", "angle", "ratio", "threshold", "dispersion", "kept", "apart", *PHASES)
COUNTS = ("rounds", "led", "kept", "excluded", "skipped", "absent", "restored", "sent", "received")
CHUNK = 4 << 20
AT_ONCE = 16  # records between two chances for others to look
MOST_DEVICES, MOST_ANGLES = 1 << 20, 1 << 13  # devices beyond which a number is damage
RECENT = 20  # rounds whose pace and throughput count


class RecordIndex:
    """The numbers of the records that were read, and where in the file they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()  # between the thread that reads on and those that answer
        self._reset()

    def _reset(self) -> None:
        self.offset, self._last_line, self._file = 0, b"", -1
        self.size = 0  # of the file, when it was last looked at
        self.damage: str | None = None
        self.caught_up = False  # there was nothing more to read
        self.lines = 0
        self.rounds = {name: array("d") for name in OF_ROUNDS}
        self.evaluations = {name: array("d") for name in (*AXES, *MEASURES)}
        self.devices = {name: np.zeros(0) for name in COUNTS}
        self.trace, self.traced = Trace(), ""
        self.measured = array("q")  # rounds with all angles, and where their records are
        self.measured_at = array("q")
        self._angles = np.zeros((2, 0, 0))  # sums and counts
        self.recent: deque[RoundRecord] = deque(maxlen=RECENT)
        self._clocked: deque[Mapping[str, ByDevice]] = deque(maxlen=RECENT)  # the last that tell it
        self.evaluation: Evaluation | None = None
        self.chooses = False

    @property
    def last(self) -> RoundRecord | None:
        """The last record."""
        return self.recent[-1] if self.recent else None

    @property
    def share(self) -> float:
        """Which share of the file is read."""
        return self.offset / self.size if self.size else 1.0

    def read_on(self, seconds: float = math.inf) -> bool:
        """Read the records that are new, for no longer than that; True if anything has changed.

        A last line that is not finished is left for the next time; a file that was shortened is read anew.
        """
        try:
            with open_file(self.path) as file:
                return self._read_on(file, time.monotonic() + seconds)
        except FileNotFoundError:
            changed = self.lines > 0
            with self.lock:
                self._reset()
            return changed

    def _read_on(self, file: BinaryIO, deadline: float) -> bool:
        before, found = self.lines, os.fstat(file.fileno())
        rewound = bool(self.offset) and (found.st_ino != self._file or found.st_size < self.offset)
        if not rewound and found.st_size > self.offset and self._last_line:
            file.seek(self.offset - len(self._last_line))
            rewound = file.read(len(self._last_line)) != self._last_line
        with self.lock:
            if rewound:
                self._reset()
            self._file, self.size, self.caught_up = found.st_ino, found.st_size, False
        while self.damage is None and time.monotonic() < deadline:
            lines = list(whole_lines(file, self.offset, AT_ONCE))
            if not lines:
                self.caught_up = True
                break
            with self.lock:
                for line in lines:
                    if not self._take(line):
                        break
            time.sleep(0.001)  # so that answers are not kept waiting
        self.caught_up = self.caught_up or self.damage is not None
        return rewound or self.lines != before

    def _take(self, line: bytes) -> bool:
        try:
            self.add(RoundRecord.from_line(line), self.offset)
        except (ValueError, ArithmeticError, RecursionError) as error:
            self.damage = (
                f"{self.path.name} is damaged in line {self.lines + 1}: {error}; what follows is not shown"
            )
            return False
        self.lines += 1
        self.offset, self._last_line = self.offset + len(line), line
        return True

    def add(self, record: RoundRecord, offset: int) -> None:
        """Take a record in; one that stands for the rounds since the last counts for all of them."""
        rows = self.rounds
        everybody = devices_in(record)
        before = int(rows["round"][-1]) if rows["round"] else 0
        gap = record.round - before
        if gap <= 0:
            raise InputError(f"round {record.round} comes after round {before}")
        traffic = sum(record.bytes_sent.values()) + sum(record.bytes_received.values())
        spent = sum(seconds for phase, seconds in record.seconds.items() if phase != "evaluate")
        chosen = record.selection
        self.chooses = self.chooses or chosen is not None
        values: dict[str, float | None] = {
            "round": record.round,
            "epoch": record.epoch,
            "bytes": gap * traffic + (rows["bytes"][-1] if rows["bytes"] else 0),
            "seconds": gap * spent + (rows["seconds"][-1] if rows["seconds"] else 0),
            "loss": record.loss,
            "angle": record.angle_mean,
            "ratio": None if chosen is None else chosen.ratio,
            "threshold": None if chosen is None else chosen.threshold,
            "dispersion": None if chosen is None else chosen.dispersion,
            "kept": len(chosen.kept) / max(1, len(record.present)) if chosen is not None else None,
            "apart": None if record.probes is None else record.probes.apart,
            **{phase: record.seconds.get(phase) for phase in PHASES},
        }
        append(self.rounds, values)
        if record.evaluation is not None:
            self._evaluated(record.evaluation)
        self._count(record, gap, everybody)
        to_leader = chosen is not None and bool(chosen.lead_angles)
        angles = chosen.lead_angles if chosen is not None and to_leader else record.scores
        self.traced = self.traced or (
            "angle to the leader" if to_leader else "mean angle to the others" if angles else ""
        )
        self.trace.add(list(angles), list(angles.values()))
        if record.angles is not None:
            self._measured(record.angles, record.round, offset)
        self.recent.append(record)
        if record.device_seconds:
            self._clocked.append(record.device_seconds)

    def _evaluated(self, found: Evaluation) -> None:
        self.evaluation = found
        traffic = sum(found.bytes_sent.values()) + sum(found.bytes_received.values())
        own = {name: getattr(found, name) for name in ("round", "epoch", "seconds", *MEASURES)}
        append(self.evaluations, own | {"bytes": traffic})

    def _count(self, record: RoundRecord, gap: int, everybody: int) -> None:
        events, chosen = record.events, record.selection
        restored = [*events.restored_before, *events.restored_between, *events.restored_after]
        present = record.present
        missing = everybody - len(self.devices["sent"])
        if missing > 0:
            self.devices = {name: np.pad(values, (0, missing)) for name, values in self.devices.items()}
        kept = set(chosen.kept) if chosen is not None else present
        for name, devices in {
            "rounds": present,
            "led": chosen.leader if chosen is not None else (),
            "kept": kept,
            "excluded": present - kept - set(record.skipped),
            "skipped": record.skipped,
            "absent": events.absent,
            "restored": restored,
        }.items():
            if devices:
                self.devices[name][list(devices)] += gap
        for name, traffic in (("sent", record.bytes_sent), ("received", record.bytes_received)):
            self.devices[name][list(traffic)] += gap * np.fromiter(traffic.values(), float, len(traffic))

    def _measured(self, angles: Angles, round: int, offset: int) -> None:
        self.measured.append(round)
        self.measured_at.append(offset)
        missing = max(angles.devices, default=-1) + 1 - self._angles.shape[1]
        if missing > 0:
            self._angles = np.pad(self._angles, ((0, 0), (0, missing), (0, missing)))
        where = np.ix_(angles.devices, angles.devices)
        self._angles[0][where] += square(angles)
        self._angles[1][where] += 1

    def device_seconds(self, count: int) -> dict[str, Numbers]:
        """Return each device's mean seconds by phase in the last rounds that tell them, NaN if none does."""
        count = max(count, len(self.devices["sent"]))  # a record may have come since it was counted
        found = {}
        for phase in {phase: None for one in self._clocked for phase in one}:
            sums, rounds = np.zeros((2, count))
            for own in (one.get(phase, {}) for one in self._clocked):
                sums[list(own)] += list(own.values())
                rounds[list(own)] += 1
            found[phase] = mean_of(sums, rounds)
        return found

    def mean_angles(self) -> Numbers:
        """Return the angles between every two devices' gradients, averaged over the rounds that have them."""
        sums, counts = self._angles
        return mean_of(sums, counts)

    def angles_at(self, place: int) -> Angles | None:
        """Return the angles of the place-th round that has them, read from the file again."""
        try:
            with open_file(self.path) as file:
                file.seek(self.measured_at[place])
                return RoundRecord.from_line(file.readline()).angles
        except (OSError, ValueError):  # the run has gone back a moment ago
            return None


def devices_in(record: RoundRecord) -> int:
    """Return how many devices there must be for a record to name these; refuse what no run has."""
    events, chosen, angles = record.events, record.selection, record.angles
    named = {*record.losses, *record.skipped, *record.bytes_sent, *record.bytes_received, *events.absent}
    named.update(events.restored_before, events.restored_between, events.restored_after)
    named.update(*record.device_seconds.values())
    if chosen is not None:
        named.update(chosen.leader, chosen.kept, chosen.scores, chosen.lead_angles)
    if angles is not None:
        named.update(angles.devices)
        size = len(angles.devices)
        pairs = sum(map(len, angles.above))
        if max(angles.devices, default=0) >= MOST_ANGLES or 2 * pairs != size * (size - 1):
            raise InputError("its angles are not those of its devices")
    if named and not 0 <= min(named) <= max(named) < MOST_DEVICES:
        raise InputError("it names a device that cannot be")
    return max(named, default=-1) + 1


def append(columns: dict[str, array[float]], values: dict[str, float | None]) -> None:
    """Add a row to columns, or nothing at all; what is not there is NaN."""
    row = [math.nan if value is None else float(value) for value in map(values.__getitem__, columns)]
    for column, value in zip(columns.values(), row, strict=True):
        column.append(value)


def square(angles: Angles) -> Numbers:
    """Return the angles of all pairs as an array."""
    size = len(angles.devices)
    found = np.zeros((size, size))
    found[np.triu_indices(size, 1)] = [angle for row in angles.above for angle in row]
    return found + found.T


def whole_lines(file: BinaryIO, offset: int, most: int) -> Iterator[bytes]:
    """Yield the lines from a place on, as many as are wanted; one without its end is none."""
    file.seek(offset)
    for _ in range(most):
        line = file.readline()
        if not line.endswith(b"\n"):
            return
        yield line


def columns(found: dict[str, array[float]], names: Iterable[str] | Sequence[str]) -> dict[str, Numbers]:
    """Return columns as arrays of their own, which stay as they are while others are read."""
    return {name: np.array(found[name]) for name in names}
