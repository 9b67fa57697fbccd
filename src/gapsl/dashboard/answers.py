"""What the page asks for, as JSON values: how a run stands, its curves, devices, angles, fleet, settings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import gapsl
from gapsl.analysis.looks import looks_of, printed_name
from gapsl.common.errors import InputError, Unavailable
from gapsl.common.files import plain
from gapsl.dashboard.downsample import NO_ANGLE, Buckets, Numbers, by_agreement, in_degrees, thinned
from gapsl.dashboard.record_index import AXES, MEASURES, OF_ROUNDS, columns, square
from gapsl.dashboard.watch import Watch, WatchedRun
from gapsl.network.processes import SERVER, Processes
from gapsl.run.config import Config, flat
from gapsl.run.status import status_of_server

POINTS = 600  # of a curve
STEPS = 2000  # of the slider through the rounds
LOG_LINES, LOG_BYTES = 60, 1 << 15
ANGLES = ("angle", "threshold", "dispersion")  # shown in degrees

Answer = dict[str, Any]


def overview(watch: Watch) -> Answer:
    """Return which runs there are, and how they stand."""
    looks = looks_of(dict.fromkeys(run.name for run in watch.runs))
    return {
        "title": ", ".join(str(folder) for folder in watch.folders),
        "gapsl": gapsl.__version__,
        "refused": list(watch.refused.values()),
        "runs": [standing(run) | {"colour": looks[run.name].colour} for run in watch.runs],
    }


def standing(run: WatchedRun) -> Answer:
    """Return how a run stands."""
    index = run.index
    with index.lock:
        last, newest = index.last, run.final or index.evaluation
        spent = [sum(record.seconds.values()) for record in index.recent]
        return {
            "id": run.number,
            "version": run.version,
            "name": printed_name(run.name),
            "seed": run.settings["seed"],
            "folder": run.folder.path.name if run.folder.path.name != "run" else run.folder.path.parent.name,
            "about": [str(run.settings.get(name)) for name in ("dataset", "model", "partition")],
            "devices": len(run.names()),
            "state": run.state,
            "round": last.round if last is not None else 0,
            "total": run.total or None,
            "epoch": last.epoch if last is not None else 0,
            "loss": last.loss if last is not None else None,
            "bytes": index.rounds["bytes"][-1] if last is not None else 0,
            "seconds": index.rounds["seconds"][-1] if last is not None else 0,
            "pace": sum(spent) / len(spent) if spent else None,
            "evaluation": {name: getattr(newest, name) for name in (*MEASURES, "split", "round")}
            if newest
            else None,
            "reading": run.reading,
            "trouble": run.trouble or run.full.damage,
            "served": run.network is not None,
            "angles": bool(index.measured),
        }


def curves(run: WatchedRun, axis: str = "round", low: float = -math.inf, high: float = math.inf) -> Answer:
    """Return everything that is drawn over the rounds, between two places of an axis."""
    index = run.index
    with index.lock:
        found = {
            "rounds": columns(index.rounds, OF_ROUNDS),
            "evaluations": columns(index.evaluations, (*AXES, *MEASURES)),
        }
    answer: Answer = {}
    for kind, table in found.items():
        first, end = np.searchsorted(table[axis], low, "left"), np.searchsorted(table[axis], high, "right")
        buckets = Buckets.of(int(end - first), POINTS, int(first))
        drawn: Answer = {name: numbers(buckets.last(table[name])) if end > first else [] for name in AXES}
        for name, values in table.items():
            if name in AXES or np.isnan(values).all():
                continue
            mean, least, most = buckets.over(np.degrees(values) if name in ANGLES else values)
            drawn[name] = numbers(mean)
            if name == "loss" and end - first > POINTS:
                drawn |= {"loss_low": numbers(least), "loss_high": numbers(most)}
        answer[kind] = drawn
    return answer


def devices(run: WatchedRun) -> Answer:
    """Return a column per thing that is known of the devices, each a list by device."""
    index, names = run.index, run.names()
    labels, unknown = run.labels
    with index.lock:
        count, last, newest = len(names), index.last, run.final or index.evaluation
        found: Answer = {name: padded(values, count) for name, values in index.devices.items()}
        trace = np.degrees(index.trace.means())
        found |= {"traced": index.traced, "chooses": index.chooses}
        if last is not None:
            found["loss"] = [last.losses.get(device) for device in range(count)]
            reasons = {device: last.reasons.get(device, "not finite") for device in last.skipped}
            found["reasons"] = {str(device): why for device, why in reasons.items()}
        if newest is not None:
            found["accuracy"] = [newest.device_accuracy.get(device) for device in range(count)]
        total = last.round if last is not None else 0
    found["state"] = states(run, names)
    return found | {
        "names": names,
        "total": total,
        "estimated": run.reading is not None,
        "trace": [numbers(row, 1) for row in trace],
        "labels": labels.counts.tolist() if labels is not None else None,
        "classes": list(labels.classes) if labels is not None else [],
        "unlabelled": unknown,
    }


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


def angles(run: WatchedRun, round: int | None = None) -> Answer:
    """Return the angles between every two devices in the round nearest to this one that has them."""
    index = run.index
    with index.lock:
        measured = np.array(index.measured, np.int64)
        if not len(measured):
            return {"rounds": [], "why": no_angles(run)}
        place = int(np.abs(measured - (measured[-1] if round is None else round)).argmin())
        whole = index.mean_angles()
        found = index.angles_at(place)
    names = run.names()
    size = len(names)
    matrix = np.full((size, size), np.nan)
    if found is not None:
        matrix[np.ix_(found.devices, found.devices)] = square(found)
    np.fill_diagonal(matrix, np.nan)
    mean_of = np.full((size, size), np.nan)
    mean_of[: len(whole), : len(whole)] = whole
    return {
        "rounds": thinned(measured, STEPS).tolist(),
        "round": int(measured[place]),
        "names": names,
        "degrees": in_degrees(matrix),
        "none": NO_ANGLE,
        "mean": mean_or_none(np.degrees(matrix)),
        "orders": {"run": by_agreement(mean_of), "round": by_agreement(matrix)},
    }


def no_angles(run: WatchedRun) -> str:
    """Say why a run has no angles to show."""
    if run.index.last is None:
        return "No round is recorded yet."
    if int(run.settings["devices"]) > 20:
        return "With many devices all angles are recorded at evaluations only, and none has come yet."
    return f"{printed_name(run.name)} does not measure the angles between its devices' gradients."


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
        known = json.loads(run.folder.fleet_file.read_text(encoding="utf-8"))
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
        "address": first_line(run.folder.path / "address"),
        "security": first_line(run.folder.path / "security"),
        "log": log_of(run),
    }


def connections(run: WatchedRun) -> tuple[dict[str, bool] | None, str]:
    """Return which devices are connected, or None and why that is not known."""
    if run.state != "running":
        return None, f"The server does not run: the run is {run.state}."
    address = first_line(run.folder.path / "metrics")
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
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            return file.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []


def about(run: WatchedRun) -> Answer:
    """Return a run's settings and environment, and how to do it again."""
    folder = run.folder
    try:
        environment = json.loads(folder.environment_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        environment = {}
    text = folder.config_file.read_text(encoding="utf-8", errors="replace")
    stored = yaml.safe_load(text)
    settings, usual = flat(stored), flat(Config().resolved())
    return {
        "folder": str(folder.path),
        "settings": {name: value for name, value in settings.items() if value is not None},
        "chosen": [name for name, value in settings.items() if value != usual.get(name)],
        "config": text,
        "environment": environment,
        "custom": stored.get("custom") or {},
        "served": run.network is not None,
        "partition": str(run.settings.get("partition")),
        "weights_sha256": run.final.weights_sha256 if run.final is not None else None,
        "log": log_of(run),
    }


def numbers(values: Iterable[float] | Numbers, digits: int | None = None) -> list[float | None]:
    """Return numbers as JSON has them: six digits of each, or so many after the point; none for NaN."""
    if digits is not None:
        return [round(float(value), digits) if math.isfinite(value) else None for value in values]
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def padded(values: Numbers, count: int) -> list[float | None]:
    """Return a number per device, zero for those that were never there."""
    return numbers(np.pad(values, (0, max(0, count - len(values))))[:count], 0)


def mean_or_none(values: Numbers) -> float | None:
    """Return the mean of what is there."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else None


def first_line(path: Path) -> str | None:
    """Return what a file of one line says, None if it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def as_text(answer: Answer) -> str:
    """Return an answer as strict JSON."""
    return json.dumps(plain(answer), allow_nan=False, separators=(",", ":"))
