"""What is stored of a run: its end, its evaluations, and means of its records between them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.data import load_partition
from gapsl.run.config import Config
from gapsl.run.environment import describe_environment
from gapsl.run.folder import RunFolder
from gapsl.run.parts import take_source
from gapsl.run.records import MEASURES, Evaluation, RoundRecord
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.store import SCHEMA

DIGITS = 5  # significant ones of a stored number

HISTORY = (
    "round", "epoch", "split", "device_mean", "ensemble", "merged", "local", "test_loss", "device_accuracy",
)  # fmt: skip
LISTS = ("device_accuracy", "class_accuracy")
MADE = ("gapsl", "commit", "torch", "python", "processor", "started")
# What a record has one number of, by the name it has in both.
NUMBERS = ("loss", "angle_mean", "dispersion", "ratio", "threshold", "apart")


def summarise(run: RunSpec, folder: RunFolder) -> dict[str, Any]:
    """Return what is stored of a finished run."""
    result = folder.result()
    if result is None:
        raise InputError(f"{folder.path} has no result; delete it, and repeat the command")
    whole, devices = result.final, run.config.devices
    final = {
        **_measured(whole, (*MEASURES, *LISTS), devices),
        "converged_epoch": whole.converged_epoch,
        **_spent(whole),
        "weights_sha256": whole.weights_sha256,
    }
    if whole.validation is not None:
        final["validation"] = _measured(whole.validation, (*MEASURES, *LISTS), devices)
    begun = {"rounds": result.rounds, "rounds_per_epoch": result.rounds_per_epoch}
    return _described(run, folder, begun, {"final": final}, list(folder.records()))


def summarise_failure(run: RunSpec, folder: RunFolder, message: str) -> dict[str, Any]:
    """Return what is stored of a run that cannot be finished: why, and how it went until then."""
    records = list(folder.records())
    begun = {"rounds": records[-1].round if records else 0}
    # The folder that the message may name is about to go.
    reason = message.replace(str(folder.path), folder.path.name)
    return _described(run, folder, begun, {"failed": reason}, records)


def _described(
    run: RunSpec,
    folder: RunFolder,
    begun: Mapping[str, Any],
    end: Mapping[str, Any],
    records: Sequence[RoundRecord],
) -> dict[str, Any]:
    """Put together what finished and failed runs both have."""
    evaluations = [record.evaluation for record in records if record.evaluation is not None]
    devices = run.config.devices
    found = {
        **begun,
        **end,
        "history": [
            {
                **_measured(entry, HISTORY, devices),
                "drift": statistics.fmean((entry.drift or {}).values()),
                **_spent(entry),
            }
            for entry in evaluations
        ],
        "windows": [window(rounds, devices) for rounds in between_evaluations(records)],
        "label_counts": label_counts(run.config, folder),
        "elapsed": sum(sum(record.seconds.values()) for record in records),
        "made": made(run.config, folder),
    }
    return {
        "schema": SCHEMA,
        "key": run.key,
        "config": run.settings,
        "method": run.settings["method"],
        "seed": run.config.seed,
        **{name: rounded(value) for name, value in found.items()},
    }


def _measured(entry: Evaluation, names: Sequence[str], devices: int) -> dict[str, Any]:
    """Return some measures of an evaluation, accuracies as a list with one place a device or class."""
    accuracy = [entry.device_accuracy.get(device) for device in range(devices)]
    lists = {"device_accuracy": accuracy, "class_accuracy": list(entry.class_accuracy)}
    return {name: lists.get(name, getattr(entry, name)) for name in names}


def _spent(entry: Evaluation) -> dict[str, Any]:
    """Return an evaluation's bytes so far, of all devices together, and its seconds of training."""
    return {
        "bytes_sent": sum(entry.bytes_sent.values()),
        "bytes_received": sum(entry.bytes_received.values()),
        "seconds": entry.seconds,
    }


def between_evaluations(records: Iterable[RoundRecord]) -> Iterator[list[RoundRecord]]:
    """Yield the records up to each evaluation, and what is left after the last."""
    rounds: list[RoundRecord] = []
    for record in records:
        rounds.append(record)
        if record.evaluation is not None:
            yield rounds
            rounds = []
    if rounds:
        yield rounds


def window(rounds: Sequence[RoundRecord], devices: int) -> dict[str, Any]:
    """Return means over some rounds.

    A name is missing where the method has no such number. Lists have one place a device, null where a
    device was never seen.
    """
    entry: dict[str, Any] = {"round": rounds[-1].round}
    numbers = [_numbers(record) for record in rounds]
    for name in NUMBERS:
        known = [found[name] for found in numbers if found.get(name) is not None]
        if known:
            entry[name] = statistics.fmean(known)
    chosen = [(record.losses, record.selection) for record in rounds if record.selection is not None]
    if chosen:
        entry["kept"] = statistics.fmean(len(selection.kept) for _, selection in chosen)
        for name in ("kept", "leader"):
            listed = [{id: id in getattr(selection, name) for id in losses} for losses, selection in chosen]
            entry[f"{name}_share"] = _by_device(listed, devices)
    probed = [record.probes.scores for record in rounds if record.probes and record.probes.scores]
    if probed:
        entry["probe_scores"] = _by_device(probed, devices)
    # A method may measure angles in one of several exchanges of a round, and so not of all devices.
    scored = [
        record.scores for record in rounds if record.scores and len(record.scores) == len(record.losses)
    ]
    if scored:
        entry["scores"] = _by_device(scored, devices)
    return entry


def _numbers(record: RoundRecord) -> dict[str, Any]:
    """Return what a record has one number of; the dispersion (Eq. 1) from its angles if need be."""
    found: dict[str, Any] = {"loss": record.loss, "angle_mean": record.angle_mean}
    if record.selection is not None:
        found |= {name: getattr(record.selection, name) for name in ("dispersion", "ratio", "threshold")}
    elif record.scores:
        found["dispersion"] = statistics.pstdev(record.scores.values())
    return found if record.probes is None else {**found, "apart": record.probes.apart}


def _by_device(rounds: Sequence[Mapping[int, float]], devices: int) -> list[float | None]:
    """Return the mean of each device's numbers over the rounds that have one."""
    own = ([each[device] for each in rounds if device in each] for device in range(devices))
    return [statistics.fmean(numbers) if numbers else None for numbers in own]


def label_counts(config: Config, folder: RunFolder) -> list[list[int]]:
    """Return how many samples of each class each device has."""
    labels, classes = _training_labels(config.dataset, config.train_samples, config.data_dir)
    counts: list[list[int]] = load_partition(folder.partition_file).label_counts(labels, classes).tolist()
    return counts


@lru_cache(maxsize=8)
def _training_labels(dataset: str, samples: int | None, data_dir: str | None) -> tuple[NDArray[Any], int]:
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
