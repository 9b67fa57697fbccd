"""Which labels the devices of a run have, and how different they are."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.analysis.runs import OWN_DATA
from gapsl.common.errors import InputError
from gapsl.common.reading import read_bytes
from gapsl.data import load_partition, load_source
from gapsl.device.build import limited
from gapsl.run.folder import RunFolder

# Distances beyond what chance gives devices of these sizes. Among 10 devices with the digits, Dirichlet(0.1)
# is at 0.55 and PSL's devices end 38 points below what they know together, Dirichlet(0.5) at 0.33 and 17
# points, Dirichlet(0.9) at 0.26 and 12, Dirichlet(3) at 0.1 and 4, as with labels dealt at random.
STRONG = 0.3
MILD = 0.15


@dataclass(frozen=True, eq=False)
class Labels:
    """How many samples of each class each device has, shape (devices, classes), and the classes' names."""

    counts: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def proportions(self) -> NDArray[np.float64]:
        """Each device's label proportions, a row each."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))


def read_labels(
    folder: RunFolder, settings: Mapping[str, Any], data_dir: str | None
) -> tuple[Labels | None, str]:
    """Return who has how many samples of each class, or None and why not; nothing is downloaded."""
    if settings.get("partition") == OWN_DATA:
        return declared_labels(folder, settings)
    custom = settings.get("custom") or {}
    if "dataset" in custom:
        return None, f"the run's data ({custom['dataset']}) came from Python and are not in its files"
    dataset = str(settings["dataset"])
    try:
        partition = load_partition(folder.partition_file)
    except InputError as error:
        return None, str(error)
    try:
        labels, classes, fingerprint = dataset_labels(
            dataset, data_dir or settings.get("data_dir"), settings.get("train_samples")
        )
    except InputError:
        return None, f"{dataset} is not on this machine; name its folder with --data-dir"
    if fingerprint != partition.fingerprint:
        return None, f"the run's partition is not of the {dataset} that this machine has"
    return Labels(partition.label_counts(labels, len(classes)), classes), ""


def declared_labels(folder: RunFolder, settings: Mapping[str, Any]) -> tuple[Labels | None, str]:
    """Return what devices with data of their own said of their labels, or None and why it is not known."""
    try:
        devices = json.loads(read_bytes(folder.fleet_file))["devices"]
        counts = np.array([devices[device]["labels"] for device in sorted(devices, key=int)], np.int64)
    except (OSError, ValueError, KeyError, TypeError):
        return None, "the devices have not said which they have"
    if counts.ndim != 2 or not counts.size:  # labels that stay on the devices
        return None, "they are the devices' own, and stay there"
    try:
        source = load_source(str(settings["dataset"]), data_dir=settings.get("data_dir"), download=False)
        classes = source.classes
    except InputError:
        classes = tuple(map(str, range(counts.shape[1])))
    return Labels(counts, classes), ""


@functools.cache
def dataset_labels(
    dataset: str, data_dir: str | None, train_samples: int | None
) -> tuple[NDArray[np.int64], tuple[str, ...], str]:
    """Return the training labels, the classes' names and the fingerprint; nothing is downloaded."""
    source = load_source(dataset, data_dir=data_dir, download=False)
    source = replace(source, train=limited(source.train, train_samples, "train_samples"))
    return source.train.labels.numpy(), source.classes, source.train_fingerprint


def distances(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each device's total-variation distance from the pooled labels: 0 the same, 1 disjoint."""
    proportions = counts / counts.sum(axis=1, keepdims=True)
    pooled = counts.sum(axis=0) / counts.sum()
    return np.asarray(np.abs(proportions - pooled).sum(axis=1) / 2)


def chance_distance(counts: NDArray[np.int64]) -> float:
    """Return the mean distance if labels were dealt at random: small devices never match exactly.

    A class of share q among n draws is off by sqrt(2 q (1 - q) / (pi n)) on average (normal limit).
    """
    pooled = counts.sum(axis=0) / counts.sum()
    spread = np.sqrt(2 / np.pi * pooled * (1 - pooled)).sum() / 2
    return float((spread / np.sqrt(counts.sum(axis=1))).mean())


def effective_classes(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many equally frequent classes each device's labels are worth: exp of their entropy."""
    proportions = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(proportions, out=np.zeros_like(proportions), where=proportions > 0)
    return np.asarray(np.exp(-(proportions * logs).sum(axis=1)))


def excess_distance(counts: NDArray[np.int64]) -> float:
    """Return how much further the devices' labels are from the pooled ones than chance explains."""
    return float(distances(counts).mean()) - chance_distance(counts)
