"""Records and results of schema 1, which told devices by their place in lists, made into those of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SELECTION = ("scores", "lead_angles", "dispersion", "ratio", "leader", "threshold", "kept", "penalty")
RESTORED = ("restored_before", "restored_between", "restored_after")
SAME = (
    "round", "epoch", "loss", "losses", "norms", "skipped", "averaged", "bytes_sent", "bytes_received",
    "seconds", "angle_mean", "evaluation",
)  # fmt: skip
PROBES = {"apart": "apart", "probe_scores": "scores", "probe_leaders": "leaders"}
KNOWN = {*SAME, *SELECTION, *RESTORED, *PROBES, "angles", "cos", "absent", "schema"}


def upgrade_record(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round's record; lists by the order of the devices in `losses` get their ids."""
    devices = sorted(map(int, old["losses"]))
    new = {name: old[name] for name in SAME if name in old}
    new["losses"] = known(old["losses"])
    if "norms" in old:
        new["norms"] = known(old["norms"])
    for name in ("bytes_sent", "bytes_received"):
        new[name] = by_place(old[name])
    if old.get("evaluation"):
        new["evaluation"] = upgrade_evaluation(old["evaluation"])
    angles = old.get("angles") or []
    # A method that measured angles in one of several exchanges of a round did not say whose they are.
    if angles and len(angles) == len(devices):
        new["angles"] = {"devices": devices, "above": [row[i + 1 :] for i, row in enumerate(angles)]}
    if "kept" in old:
        chosen = {name: old[name] for name in SELECTION if name in old}
        for name in ("scores", "lead_angles"):
            values = old.get(name, [])
            chosen[name] = dict(zip(devices, values, strict=True)) if len(values) == len(devices) else {}
        new["selection"] = chosen
    if any(name in old for name in PROBES):
        new["probes"] = {now: old[name] for name, now in PROBES.items() if name in old}
    absent: dict[int, list[int]] = {}
    for turn, device in old.get("absent", ()):
        absent.setdefault(device, []).append(turn)
    new["events"] = {"absent": absent, **{name: old[name] for name in RESTORED if name in old}}
    new["details"] = {name: value for name, value in old.items() if name not in KNOWN}
    return new


def upgrade_evaluation(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation with its lists by device."""
    new = {name: value for name, value in old.items() if name != "validation"}
    for name in ("device_accuracy", "drift", "bytes_sent", "bytes_received"):
        if old.get(name) is not None:
            new[name] = by_place(old[name])
    if old.get("validation"):
        new["validation"] = upgrade_evaluation(old["validation"])
    return new


def upgrade_result(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with its evaluations by device."""
    if "schema" not in old:
        raise KeyError("schema")
    history = [upgrade_evaluation(entry) for entry in old["history"]]
    return {**old, "final": upgrade_evaluation(old["final"]), "history": history}


def by_place(values: Sequence[float | None]) -> dict[int, float]:
    """Return a list of numbers, one per device, by device id."""
    return known(dict(enumerate(values)))


def known(values: Mapping[Any, float | None]) -> dict[Any, float]:
    """Return numbers by device without those that were none."""
    return {device: value for device, value in values.items() if value is not None}
