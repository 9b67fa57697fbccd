"""The runs that a page shows: found in folders, read on while they are trained, never written."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapsl.analysis.comparison_folder import some_runs
from gapsl.analysis.labels import Labels, read_labels
from gapsl.analysis.runs import RunSummary, settings_of, stored_settings
from gapsl.common.errors import InputError
from gapsl.dashboard.record_index import RecordIndex
from gapsl.dashboard.sketch import sketch_of
from gapsl.network.processes import PROCESSES
from gapsl.network.protocol.settings import Network, make_network
from gapsl.run.folder import RunFolder
from gapsl.run.records import FinalEvaluation
from gapsl.run.status import is_locked, planned_rounds

LONG = 16 << 20  # bytes of records from which on some are shown before all are read
STEP = 0.2  # seconds that one run is read before the others have their turn
PAUSE = 0.2  # seconds between two looks at the files
NEWS = 2.0  # seconds between two words on how far a long file is read
POLITE = 0.3  # seconds that reading a long file waits after a question, so that answers come soon


class WatchedRun:
    """One run: its settings, the index of its records, and how it stands."""

    def __init__(self, folder: RunFolder, number: int, data_dir: str | None = None) -> None:
        self.folder, self.number, self._data_dir = folder, number, data_dir
        self.settings: Mapping[str, Any] = {}
        self.full = RecordIndex(folder.records_file)
        self.sketch: RecordIndex | None = None  # of a long file, until all of it is read
        self.final: FinalEvaluation | None = None
        self.network: Network | None = None  # how it goes over the network, if it does
        self.trouble: str | None = None  # what of its files cannot be read
        self.state = "stopped"
        self.version = 0
        self._seen: tuple[object, ...] = ()
        self._classes: tuple[str, ...] = ()
        self._stamps: tuple[int, ...] = ()  # when its files were written that are read as a whole
        self._damage: str | None = None
        self._labels: tuple[tuple[int, ...], tuple[Labels | None, str]] | None = (
            None  # and when they were read
        )
        self._read_settings()

    @property
    def index(self) -> RecordIndex:
        """The records as far as they are known."""
        return self.sketch or self.full

    @property
    def reading(self) -> float | None:
        """The share of its records that is read; None: all."""
        return self.full.share if self.sketch is not None else None

    @property
    def name(self) -> str:
        """Its label, or its method."""
        return str(self.settings.get("label") or self.settings["method"])

    @property
    def total(self) -> int:
        """How many rounds it is to have; 0 if that is not known yet."""
        return planned_rounds(self.settings, self.index.last)

    @property
    def fleet(self) -> Path | None:
        """The folder of the processes that `gapsl fleet up` has started for it, if it has."""
        parent = self.folder.path.parent
        return parent if (parent / PROCESSES).exists() else None

    @property
    def labels(self) -> tuple[Labels | None, str]:
        """Who has how many samples of each class, or why that is not known; read when that may be new."""
        files = (self.folder.config_file, self.folder.partition_file, self.folder.fleet_file)
        now = tuple(map(written, files))
        if self._labels is None or self._labels[0] != now:
            self._labels = now, read_labels(self.folder, self.settings, self._data_dir)
        return self._labels[1]

    def names(self) -> list[str]:
        """Return what its devices are called."""
        count = max(int(self.settings["devices"]), len(self.index.devices["sent"]))
        network = self.network
        try:
            return list(network.device_names(count)) if network is not None else list(map(str, range(count)))
        except InputError:
            return list(map(str, range(count)))

    def read_on(self, seconds: float = STEP) -> bool:
        """Look at its files; True if anything has changed."""
        unreadable = None
        try:
            if self.full.offset == 0 and self.sketch is None:
                self._sketch()
            self.full.read_on(seconds)
        except Exception as error:  # whatever it is, the other runs are read on
            unreadable = f"its records cannot be read: {error}"
        if self.full.caught_up:
            self.sketch = None
        self._look_at_files()
        self.trouble = unreadable or self.full.damage or self._damage
        finished = self.folder.result_file.exists()
        self.state = "finished" if finished else "running" if is_locked(self.folder) else "stopped"
        read = (self.full.lines, self.full.offset) if self.sketch is None else time.monotonic() // NEWS
        seen = (self.state, read, self.trouble, self._stamps)
        changed, self._seen = seen != self._seen, seen
        self.version += changed
        return changed

    def _sketch(self) -> None:
        path = self.folder.records_file
        if path.exists() and path.stat().st_size > LONG:
            self.sketch = sketch_of(path, self.settings.get("evaluate_every"))

    def _read_settings(self) -> None:
        self.settings = stored_settings(self.folder)
        stored = self.folder.network()
        self.network = make_network(stored) if stored is not None else None

    def _look_at_files(self) -> None:
        """Read settings and result again if they are new: a run finishes, and may be extended after that."""
        files = (self.folder.config_file, self.folder.network_file, self.folder.result_file)
        stamps = tuple(map(written, files))
        if stamps == self._stamps:
            return
        self._stamps, self._damage = stamps, None
        try:
            self._read_settings()
            result = self.folder.result()
            self.final = result.final if result is not None else None
            self._classes = result.classes if result is not None else ()
        except (InputError, OSError) as error:
            self.final, self._damage = None, str(error)

    def summary(self) -> RunSummary:
        """Return what tables need of it."""
        index = self.index
        return RunSummary(
            name=self.name,
            seed=int(self.settings["seed"]),
            settings=settings_of(self.settings),
            history=(index.evaluation,) if index.evaluation is not None else (),
            done=index.last.round if index.last is not None else 0,
            total=self.total,
            final=self.final,
            classes=self._classes,
            folder=self.folder,
        )


class Watch:
    """All runs of some folders. A thread reads on; whoever looks sees `version` grow."""

    def __init__(
        self, folders: Sequence[Path], *, data_dir: str | None = None, expected: bool = False
    ) -> None:
        self.folders, self._data_dir = folders, data_dir
        self.runs: list[WatchedRun] = []
        self.refused: dict[Path, str] = {}
        self.version = 0
        self.asked = 0.0  # when somebody last wanted to know something
        self._stopped = threading.Event()
        self.look(expected=expected)
        if not self.runs and not expected:
            raise InputError("; ".join(self.refused.values()))

    def look(self, *, expected: bool = True) -> None:
        """Find the runs that are there; those that are not yet may be `expected`."""
        known = {run.folder.path.resolve() for run in self.runs}
        for folder in self.folders:
            try:
                found = some_runs(inner(folder))
            except InputError:
                if not expected:
                    raise
                continue
            for one in found:
                if one.path.resolve() in known:
                    continue
                try:
                    self.runs.append(WatchedRun(one, len(self.runs), self._data_dir))
                    self.refused.pop(one.path, None)
                    known.add(one.path.resolve())
                except (InputError, OSError) as error:
                    self.refused[one.path] = f"{one.path.name}: {error}"

    def read_on(self, seconds: float = STEP) -> bool:
        """Look once at everything; True if anything has changed."""
        before = len(self.runs)
        self.look()
        changed = [run.read_on(seconds) for run in self.runs]
        if any(changed) or len(self.runs) != before:
            self.version += 1
        return any(changed)

    def read_all(self) -> None:
        """Read everything that is there."""
        for run in self.runs:
            run.read_on(math.inf)

    def start(self) -> None:
        """Read on in the background until `stop`."""
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            self.read_on()
            long = any(run.sketch is not None for run in self.runs)
            self._stopped.wait(0.0 if long else PAUSE)
            while long and time.monotonic() - self.asked < POLITE:
                self._stopped.wait(POLITE / 10)


def inner(folder: Path) -> Path:
    """Return the folder of the run that `gapsl fleet up` has made in a folder, or the folder itself."""
    inside = folder / "run"
    return inside if RunFolder(inside).config_file.is_file() else folder


def written(path: Path) -> int:
    """Return when a file was written, 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
