"""Folders of runs that were never trained: as long, and with as many devices, as a test of the page needs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gapsl.run.config import make_config


def made_run(folder: Path, *, rounds: int, devices: int, evaluate_every: int = 10, **settings: Any) -> Path:
    """Write settings and records of a run that stopped after so many rounds."""
    folder.mkdir(parents=True)
    values = {"method": "gapsl", "devices": devices, "rounds": rounds, "evaluate_every": evaluate_every}
    config = make_config({**values, **settings}).resolved()
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    with (folder / "records.jsonl").open("w") as file:
        file.writelines(lines(rounds, devices, evaluate_every))
    return folder


def lines(rounds: int, devices: int, evaluate_every: int, first: int = 1) -> Iterator[str]:
    """Yield records like those of GAPSL, with numbers that can be foretold; numbers by device repeat."""
    chance = random.Random(0)
    some = [
        {"losses": numbers(chance, devices, 2.0), "norms": numbers(chance, devices, 0.1)} for _ in range(7)
    ]
    chosen = [selection(chance, devices) for _ in range(7)]
    traffic = {str(d): 576 for d in range(devices)}
    for t in range(first, rounds + 1):
        record: dict[str, Any] = {"schema": 2, "round": t, "epoch": t / 10, "loss": 2.3 / (1 + t / 100)}
        record |= some[t % 7]
        record |= {"bytes_sent": traffic, "bytes_received": traffic, "angle_mean": 1.5}
        record |= {"seconds": {"collect": 0.1, "server": 0.2, "deliver": 0.1, "move": 0.0}}
        record["selection"] = chosen[t % 7]
        if t % evaluate_every == 0 or t == rounds:
            record["evaluation"] = evaluation(t, t / rounds, devices)
        if devices <= 20 or t % evaluate_every == 0:
            record["angles"] = {"devices": list(range(devices)), "above": angles(devices)}
        yield json.dumps(record) + "\n"


def numbers(chance: random.Random, devices: int, about: float) -> dict[str, float]:
    """A number per device."""
    return {str(device): about * chance.random() for device in range(devices)}


def selection(chance: random.Random, devices: int) -> dict[str, Any]:
    """The first third leads, the first half is kept."""
    angle = numbers(chance, devices, 2.0)
    kept = list(range(max(1, devices // 2)))
    return {
        "leader": list(range(max(1, devices // 3))), "kept": kept, "scores": angle, "lead_angles": angle,
        "dispersion": 0.1, "ratio": 0.3, "threshold": 1.2, "penalty": {str(device): 0.0 for device in kept},
    }  # fmt: skip


def angles(devices: int) -> list[list[float]]:
    """Even devices agree with even ones, odd ones with odd ones."""
    return [[0.6 if (i + j) % 2 == 0 else 1.9 for j in range(i + 1, devices)] for i in range(devices)]


def evaluation(t: int, accuracy: float, devices: int) -> dict[str, Any]:
    """All devices have the same accuracy."""
    total = {str(device): 576 * t for device in range(devices)}
    return {
        "round": t, "epoch": t / 10, "split": "test", "device_mean": accuracy, "device_std": 0.0,
        "device_min": accuracy, "device_max": accuracy, "ensemble": accuracy, "local": accuracy,
        "test_loss": 1.0, "device_accuracy": {str(device): accuracy for device in range(devices)},
        "bytes_sent": total, "bytes_received": total, "seconds": 0.4 * t,
    }  # fmt: skip
