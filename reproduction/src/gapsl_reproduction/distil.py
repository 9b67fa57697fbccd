"""From a run's folder to the small result that is stored of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.data import load_partition
from gapsl.run.config import Config
from gapsl.run.environment import describe_environment
from gapsl.run.folder import RunFolder
from gapsl.run.parts import take_source
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.store import SCHEMA
from gapsl_reproduction.windows import Record, windows

DIGITS = 5  # significant ones of a stored number

HISTORY = (
    "round", "epoch", "split", "device_mean", "ensemble", "merged", "local", "test_loss", "device_accuracy",
)  # fmt: skip
MEASURES = (
    "device_mean", "device_std", "device_min", "device_max", "ensemble", "merged", "local", "test_loss",
    "device_accuracy", "class_accuracy",
)  # fmt: skip
MADE = ("gapsl", "commit", "torch", "python", "processor", "started")


def distil(run: RunSpec, folder: RunFolder) -> dict[str, Any]:
    """Return what is stored of a finished run."""
    result = folder.result()
    if result is None:
        raise InputError(f"{folder.path} has no result; delete it, and repeat the command")
    whole = result["final"]
    final = {
        **{name: whole[name] for name in MEASURES},
        "converged_epoch": whole["converged_epoch"],
        **spent(whole),
        "weights_sha256": whole["weights_sha256"],
    }
    if "validation" in whole:
        final["validation"] = {name: whole["validation"][name] for name in MEASURES}
    begun = {"rounds": result["rounds"], "rounds_per_epoch": result["rounds_per_epoch"]}
    return described(run, folder, begun, {"final": final}, list(folder.records()))


def distil_failure(run: RunSpec, folder: RunFolder, message: str) -> dict[str, Any]:
    """Return what is stored of a run that cannot be finished: why, and how it went until then."""
    records = list(folder.records())
    begun = {"rounds": records[-1]["round"] if records else 0}
    # The folder that the message may name is about to go.
    reason = message.replace(str(folder.path), folder.path.name)
    return described(run, folder, begun, {"failed": reason}, records)


def described(
    run: RunSpec, folder: RunFolder, begun: Mapping[str, Any], end: Mapping[str, Any], records: list[Record]
) -> dict[str, Any]:
    """Put together what finished and failed runs both have."""
    evaluations = [record["evaluation"] for record in records if record.get("evaluation")]
    measured = {
        **begun,
        **end,
        "history": [
            {**{name: entry[name] for name in HISTORY}, "drift": fmean(entry["drift"]), **spent(entry)}
            for entry in evaluations
        ],
        "windows": windows(records, run.config.devices),
        "label_counts": label_counts(run.config, folder),
        "elapsed": sum(sum(record["seconds"].values()) for record in records),
        "made": made(run.config, folder),
    }
    return {
        "schema": SCHEMA,
        "key": run.key,
        "config": run.settings,
        "method": run.settings["method"],
        "seed": run.config.seed,
        **{name: rounded(value) for name, value in measured.items()},
    }


def spent(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation's bytes so far, of all devices together, and its seconds of training."""
    return {
        "bytes_sent": sum(entry["bytes_sent"]),
        "bytes_received": sum(entry["bytes_received"]),
        "seconds": entry["seconds"],
    }


def label_counts(config: Config, folder: RunFolder) -> list[list[int]]:
    """Return how many samples of each class each device has."""
    labels, classes = training_labels(config.dataset, config.train_samples, config.data_dir)
    counts: list[list[int]] = load_partition(folder.partition_file).label_counts(labels, classes).tolist()
    return counts


@lru_cache(maxsize=8)
def training_labels(dataset: str, samples: int | None, data_dir: str | None) -> tuple[NDArray[Any], int]:
    """Return the labels of a dataset's training samples, and the number of classes."""
    source = take_source(Config(dataset=dataset, train_samples=samples, data_dir=data_dir), None)
    return np.asarray(source.train.labels), len(source.classes)


def made(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Return what the run was computed with."""
    try:
        environment = json.loads((folder.path / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # killed while the folder was made
        environment = describe_environment()
    device = environment["cuda"] if config.device.startswith("cuda") else config.device
    return {**{name: environment[name] for name in MADE}, "device": device}


def rounded(value: Any) -> Any:
    """Return a value with as many digits as anybody needs."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value
