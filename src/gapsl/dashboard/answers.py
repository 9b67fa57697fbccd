"""What the page asks for, as JSON values: how a run stands, its curves, devices, angles, settings."""

from __future__ import annotations

import json
import math

import numpy as np

import gapsl
from gapsl.analysis.looks import looks_of, printed_name
from gapsl.common.files import plain
from gapsl.common.reading import read_bytes, read_text
from gapsl.dashboard.downsample import (
    NO_ANGLE,
    Answer,
    Buckets,
    by_agreement,
    in_degrees,
    mean_or_none,
    numbers,
    padded,
    thinned,
)
from gapsl.dashboard.fleet import log_of, states
from gapsl.dashboard.record_index import AXES, OF_ROUNDS, columns, square
from gapsl.dashboard.watch import Watch, WatchedRun
from gapsl.run.config import Config, flat
from gapsl.run.records import MEASURES

POINTS = 600  # of a curve
STEPS = 2000  # of the slider through the rounds
ANGLES = ("angle", "threshold", "dispersion")  # shown in degrees


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
            "trouble": run.trouble,
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
        seconds = index.device_seconds(count)
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
        "seconds": {phase: numbers(means) for phase, means in seconds.items()},
        "labels": labels.counts.tolist() if labels is not None else None,
        "classes": list(labels.classes) if labels is not None else [],
        "unlabelled": unknown,
    }


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


def about(run: WatchedRun) -> Answer:
    """Return a run's settings and environment, and how to do it again."""
    folder = run.folder
    try:
        environment = json.loads(read_bytes(folder.environment_file))
    except (OSError, ValueError):
        environment = {}
    text = read_text(folder.config_file, errors="replace")
    stored = folder.settings()
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


def as_text(answer: Answer) -> str:
    """Return an answer as strict JSON."""
    return json.dumps(plain(answer), allow_nan=False, separators=(",", ":"))
