"""What devices do at the moment: in the last round, and over the network by what server and processes say."""

from __future__ import annotations

import json
from pathlib import Path

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.reading import SMALL, read_bytes, read_end, read_text
from gapsl.dashboard.downsample import Answer, padded
from gapsl.dashboard.watch import WatchedRun
from gapsl.network.processes import LOG_BYTES, SERVER, Processes
from gapsl.run.status import status_of_server

LOG_LINES = 60


def states(run: WatchedRun, names: list[str]) -> list[str]:
    """Return in a word what each device does: as the last round has it, and whether it is connected now."""
    last, found = run.index.last, []
    connected = (connections(run)[0] or {}) if run.network is not None else {}
    for device, name in enumerate(names):
        here = connected.get(name)
        if last is None:
            found.append({True: "connected", False: "away", None: "unknown"}[here])
        elif here is False or (device in last.events.absent and here is None):
            found.append("away")
        elif device in last.events.absent:
            found.append("slow")
        elif device in last.skipped:
            found.append("skipped")
        elif device not in last.present:
            found.append("not drawn")
        elif last.selection is None:
            found.append("took part")
        else:
            chosen = last.selection
            found.append(
                "excluded" if device not in chosen.kept else "leader" if device in chosen.leader else "kept"
            )
    return found


def fleet(run: WatchedRun) -> Answer:
    """Return who is connected, who is waited for, what went wrong, and how fast the links are."""
    network, index, names = run.network, run.index, run.names()
    if network is None:
        return {"served": False}
    connected, unknown = connections(run)
    with index.lock:
        recent, last = list(index.recent), index.last
        absent, restored = (padded(index.devices[name], len(names)) for name in ("absent", "restored"))
    moving = sum(record.seconds.get(phase, 0) for record in recent for phase in ("collect", "deliver"))
    moved = [
        sum(r.bytes_sent.get(d, 0) + r.bytes_received.get(d, 0) for r in recent) for d in range(len(names))
    ]
    missing = [name for name, here in (connected or {}).items() if not here]
    if connected is None and last is not None:
        missing = [names[device] for device in sorted(last.events.absent)]
    try:
        known = json.loads(read_bytes(run.folder.fleet_file))
        begun = [int(start) for _, start in known["generations"]]
    except (OSError, ValueError, KeyError, TypeError):
        begun = []
    return {
        "served": True,
        "names": names,
        "connected": [connected.get(name) for name in names] if connected is not None else None,
        "unknown": unknown,
        "waiting": missing if run.state == "running" else [],
        "absent": absent,
        "restored": restored,
        "throughput": [count / moving if moving else None for count in moved],
        "rollbacks": begun[1:],  # the first is the start
        "closing": network.closing,
        "address": first_line(run.folder.address_file),
        "security": first_line(run.folder.security_file),
        "log": log_of(run),
    }


def connections(run: WatchedRun) -> tuple[dict[str, bool] | None, str]:
    """Return which devices are connected, or None and why that is not known."""
    if run.state != "running":
        return None, f"The server does not run: the run is {run.state}."
    address = first_line(run.folder.metrics_file)
    if address:
        try:
            return status_of_server(address).connected, ""
        except (InputError, Unavailable):
            pass
    if run.fleet is not None:
        try:
            alive = {process.name: process.alive for process in Processes(run.fleet).found()}
            return {name: alive.get(name, False) for name in run.names()}, ""
        except InputError:
            pass
    return None, "Start gapsl serve with --metrics localhost:9100 to see who is connected."


def log_of(run: WatchedRun) -> list[str]:
    """Return the last lines of what the server, or a comparison's worker, has said."""
    path = (
        Processes(run.fleet).logs / f"{SERVER}.log" if run.fleet is not None else run.folder.path / "log.txt"
    )
    try:
        return read_end(path, LOG_BYTES)[-LOG_LINES:]
    except OSError:
        return []


def first_line(path: Path) -> str | None:
    """Return what a file of one line says, None if it is not there."""
    try:
        return read_text(path, SMALL, errors="replace").strip() or None
    except OSError:
        return None
