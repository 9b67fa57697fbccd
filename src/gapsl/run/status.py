"""How a run stands, read from its folder or asked of its server; nothing in it is touched."""

from __future__ import annotations

import fcntl
import math
import os
import re
import urllib.request
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.reading import read_text
from gapsl.network.protocol.settings import make_network
from gapsl.network.tls.credentials import check_address
from gapsl.run.build import DEFAULT_EPOCHS
from gapsl.run.folder import RunFolder
from gapsl.run.records import RoundRecord

RECENT = 20  # rounds whose pace tells how long the others will take
ANSWER_SECONDS = 5.0
FIGURE = re.compile(r'^gapsl_(\w+?)(?:\{device="(.*)"\})? ([-+\w.]+)$', re.MULTILINE)


@dataclass(frozen=True)
class RunStatus:
    """What one wants to know of a run while it is trained."""

    name: str
    state: str  # running, stopped or finished
    round: int
    total: int | None = None  # None: not known before it has begun
    loss: float | None = None
    accuracy: float | None = None
    pace: float | None = None  # seconds per round
    absent: tuple[str, ...] = ()  # devices that the last round was closed without
    connected: dict[str, bool] | None = None  # by device, if a server says so
    waits: bool = False  # for whoever is not connected
    damage: str | None = None

    def lines(self) -> list[str]:
        """Return it in words."""
        of = "" if self.total is None else f" of {self.total}"
        words = [f"{self.name}: {self.state}, round {self.round}{of}"]
        if self.loss is not None:
            words.append(f"loss {self.loss:.3f}")
        if self.accuracy is not None:
            words.append(f"accuracy {100 * self.accuracy:.1f} %")
        if self.pace is not None and self.state == "running":
            words.append(f"{self.pace:.2g} s per round")
            if self.total is not None and not self._waited_for:
                words.append(f"{timedelta(seconds=round(self.pace * (self.total - self.round)))} left")
        found = [", ".join(words)]
        if self.absent:
            found.append(f"the last round was closed without {', '.join(self.absent)}")
        if self._waited_for:
            found.append(f"waiting for {', '.join(self._waited_for)}")
        if self.connected is not None:
            for here, title in ((True, "connected"), (False, "not connected")):
                names = [name for name, is_here in self.connected.items() if is_here == here]
                found += [f"{title}: {', '.join(names)}"] if names else []
        return found if self.damage is None else [*found, self.damage]

    @property
    def _waited_for(self) -> list[str]:
        """The devices without which it does not go on, and which are not there."""
        return [name for name, here in (self.connected or {}).items() if not here and self.waits]


def status(what: str | Path) -> RunStatus:
    """Return how a run stands: of its folder, a fleet's folder, or the HOST:PORT of a server's metrics."""
    path = Path(what).expanduser()
    if not path.exists() and re.fullmatch(r".*:\d+", str(what)):
        check_address(str(what))
        return status_of_server(str(what))
    if RunFolder(path / "run").config_file.exists():  # what `gapsl fleet up` makes
        path = path / "run"
    return status_of_folder(RunFolder.open(path))


def planned_rounds(settings: Mapping[str, Any], last: RoundRecord | None) -> int:
    """Return how many rounds an unfinished run is to have; 0 if that is not known before its first."""
    rounds = settings.get("extended_to") or settings.get("rounds")
    if rounds is not None:
        return int(rounds)
    if last is None:
        return 0
    per_epoch = max(1, round(last.round / last.epoch)) if last.epoch > 0 else 1
    return int(settings.get("epochs") or DEFAULT_EPOCHS) * per_epoch


def status_of_folder(folder: RunFolder) -> RunStatus:
    """Return how the run of a folder stands."""
    config, _ = folder.config()
    result = folder.result()
    last, paces, accuracy = None, deque[float](maxlen=RECENT), None
    for record in folder.records():
        last = record
        paces.append(sum(record.seconds.values()))
        if record.evaluation is not None:
            accuracy = record.evaluation.device_mean
    names: tuple[str, ...] = ()
    waits = False
    if (stored := folder.network()) is not None:
        network = make_network(stored)
        names, waits = network.device_names(config.devices), network.closing == "all"
    done = 0 if last is None else last.round
    damage = None
    if result is not None and result.rounds != done:
        damage = f"{folder.records_file} ends at round {done}: put it back from a copy of the folder"
    found = RunStatus(
        str(folder.path),
        "finished" if result is not None else "running" if is_locked(folder) else "stopped",
        done if result is None else result.rounds,
        total=(planned_rounds(config.resolved(), last) or None) if result is None else result.rounds,
        loss=None if last is None else last.loss,
        accuracy=accuracy if result is None else result.final.device_mean,
        pace=sum(paces) / len(paces) if paces else None,
        absent=tuple(names[d] for d in sorted(last.events.absent)) if last is not None and names else (),
        waits=waits,
        damage=damage,
    )
    if found.state == "running" and folder.connected_file.is_file():
        here = read_text(folder.connected_file, errors="replace").split()
        return replace(found, connected={name: name in here for name in names})
    return found


def status_of_server(address: str) -> RunStatus:
    """Return how the run stands whose server has its metrics at HOST:PORT."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=ANSWER_SECONDS) as answer:
            text = answer.read(10_000_000).decode(errors="replace")
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or reason
        raise Unavailable(
            f"no metrics at {address} ({why}); give the address of gapsl serve --metrics, or a run's folder"
        ) from None
    figures = {(name, device): float(value) for name, device, value in FIGURE.findall(text)}
    if ("round", "") not in figures:
        raise InputError(
            f"what is at {address} is no gapsl server; give the address of gapsl serve --metrics"
        )

    def known(name: str) -> float | None:
        value = figures.get((name, ""), math.nan)
        return None if math.isnan(value) else value

    total, done = known("rounds_planned"), figures.get(("rounds_total", ""), 0.0)
    seconds = sum(float(value) for value in re.findall(r'gapsl_seconds_total\{phase="\w+"\} (\S+)', text))
    return RunStatus(
        address,
        "running",
        int(figures["round", ""]),
        total=None if total is None else int(total),
        loss=known("loss"),
        accuracy=known("accuracy"),
        pace=seconds / done if done else None,
        connected={device: bool(value) for (name, device), value in figures.items() if name == "connected"},
    )


def is_locked(folder: RunFolder) -> bool:
    """Say whether a process is training in a folder."""
    try:
        descriptor = os.open(folder.path / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # there was never anybody
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
