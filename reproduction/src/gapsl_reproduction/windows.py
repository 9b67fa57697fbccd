"""What a run's records say between two evaluations: means over the rounds, and over each device's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Record = dict[str, Any]

# What a record has one number of, by the name it has in both.
NUMBERS = ("loss", "angle_mean", "dispersion", "ratio", "threshold", "apart")


def windows(records: Iterable[Record], devices: int) -> list[dict[str, Any]]:
    """Return one entry an evaluation: means over its round and those since the evaluation before it.

    A name is missing where the method has no such number. Lists have one place a device, null where a
    device was never seen.
    """
    return [summary(rounds, devices) for rounds in between_evaluations(records)]


def between_evaluations(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the records up to each evaluation, and what is left after the last."""
    rounds: list[Record] = []
    for record in records:
        rounds.append(record)
        if record.get("evaluation"):
            yield rounds
            rounds = []
    if rounds:
        yield rounds


def summary(rounds: Sequence[Record], devices: int) -> dict[str, Any]:
    """Return the means over some rounds."""
    rounds = [with_scores(record) for record in rounds]
    entry: dict[str, Any] = {"round": rounds[-1]["round"]}
    for name in NUMBERS:
        known = [record[name] for record in rounds if record.get(name) is not None]
        if known:
            entry[name] = statistics.fmean(known)
    chosen = [record for record in rounds if "kept" in record]
    if chosen:
        entry["kept"] = statistics.fmean(len(record["kept"]) for record in chosen)
        entry["kept_share"] = shares("kept", chosen, devices)
        entry["leader_share"] = shares("leader", chosen, devices)
    probed = [record["probe_scores"] for record in rounds if "probe_scores" in record]
    if probed:
        entry["probe_scores"] = [mean_of(device, probed) for device in range(devices)]
    # A method that measures angles in one of several exchanges of a round does not say whose they are.
    scored = [r for r in rounds if "scores" in r and len(r["scores"]) == len(present(r))]
    if scored:
        entry["scores"] = scores(scored, devices)
    return entry


def with_scores(record: Record) -> Record:
    """Return a record with scores and dispersion (Eq. 1), from its angles if the method has none."""
    angles = record.get("angles")
    if "scores" in record or angles is None:
        return record
    found = [statistics.fmean(angle for j, angle in enumerate(row) if j != i) for i, row in enumerate(angles)]
    return {**record, "scores": found, "dispersion": statistics.pstdev(found)}


def present(record: Record) -> list[int]:
    """Return the devices whose gradients a record is about, in the order of its lists."""
    return sorted(int(device) for device in record["losses"])


def scores(rounds: Sequence[Record], devices: int) -> list[float | None]:
    """Return the mean score of each device over the rounds it took part in."""
    found: list[list[float]] = [[] for _ in range(devices)]
    for record in rounds:
        for device, score in zip(present(record), record["scores"], strict=True):
            found[device].append(score)
    return [statistics.fmean(own) if own else None for own in found]


def mean_of(device: int, rounds: Sequence[dict[str, float]]) -> float | None:
    """Return the mean of a device's numbers over the rounds that have one."""
    own = [record[str(device)] for record in rounds if str(device) in record]
    return statistics.fmean(own) if own else None


def shares(name: str, rounds: Sequence[Record], devices: int) -> list[float | None]:
    """Return the share of each device's rounds in which it is on the record's list of this name."""
    listed: list[list[bool]] = [[] for _ in range(devices)]
    for record in rounds:
        for device in present(record):
            listed[device].append(device in record[name])
    return [statistics.fmean(own) if own else None for own in listed]
