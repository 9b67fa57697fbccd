"""A run as a diagnosis sees it: settings, records, the method's traits, and the devices' labels."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.data import load_partition, load_source
from gapsl.device.build import limited
from gapsl.methods.base import Strategy
from gapsl.methods.registry import METHODS
from gapsl.run.build import DEFAULT_EPOCHS
from gapsl.run.config import Config, merge, read_yaml, setting_names
from gapsl.run.folder import RunFolder
from gapsl.run.records import Evaluation, RoundRecord

OWN_DATA = "own data"  # in place of a partition, where devices bring theirs


@dataclass(frozen=True, eq=False)
class Labels:
    """How many samples of each class each device has, shape (devices, classes), and the classes' names."""

    counts: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def proportions(self) -> NDArray[np.float64]:
        """Each device's label proportions, a row each."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Run:
    """A run as its files tell it; there is at least one round."""

    settings: Mapping[str, Any]
    records: tuple[RoundRecord, ...]
    total_rounds: int
    finished: bool
    labels: Labels | None = None
    unseen: tuple[str, ...] = ()  # what could not be examined, and why
    names: tuple[str, ...] = ()  # of the devices, where they have some

    def setting(self, name: str) -> Any:
        """Return a setting by its dotted name, None if the run has none of that name."""
        found: Any = self.settings
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    @cached_property
    def method(self) -> type[Strategy] | None:
        """The method, None for one that is not registered here."""
        name = str(self.settings["method"])
        return METHODS[name] if name in METHODS else None  # noqa: SIM401 - a registry raises no KeyError

    def has(self, name: str) -> bool:
        """Say whether the method has a setting of this name of its own."""
        return self.method is not None and name in setting_names(self.method.parameters)

    def own(self, name: str) -> Any:
        """Return one of the method's own settings, None if it has none of that name."""
        section = self.method.section if self.method is not None else None
        return self.setting(f"{section}.{name}") if self.has(name) else None

    @property
    def pooled(self) -> bool:
        """Whether all data were in one place, so that no device has labels of its own."""
        return self.method is not None and self.method.pooled

    @property
    def trains_devices(self) -> bool:
        """Whether client-side models learn at all."""
        return self.method is None or self.method.trains_devices

    @cached_property
    def own_models(self) -> bool:
        """Whether every device trains a client-side model of its own, so that they can drift apart."""
        if self.method is not None:
            return (
                self.method.trains_devices and self.method.shared_client_model is Strategy.shared_client_model
            )
        # Of a method that is not known here: shared models are right and wrong together.
        each = [set(evaluation.device_accuracy.values()) for evaluation in self.evaluations]
        return not each or any(len(found) > 1 for found in each)

    @cached_property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """All evaluations so far."""
        return tuple(record.evaluation for record in self.records if record.evaluation is not None)

    @property
    def last(self) -> Evaluation | None:
        """The newest evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def chance(self) -> float | None:
        """The accuracy of guessing, where the number of classes is known."""
        return 1 / len(self.last.class_accuracy) if self.last and self.last.class_accuracy else None

    @cached_property
    def losses(self) -> dict[int, float]:
        """The training loss by round, where any device had a finite one."""
        return {record.round: record.loss for record in self.records if record.loss is not None}

    def who(self, device: int) -> str:
        """Return a device's number, and its name if it has one."""
        return f"{device} ({self.names[device]})" if device < len(self.names) else str(device)

    def class_name(self, index: int) -> str:
        """Return a class's name, its number where names are not known."""
        return self.labels.classes[index] if self.labels is not None else str(index)


def read_run(folder: RunFolder, data_dir: str | None = None) -> Run:
    """Read all that a run's files say; `data_dir` is where the dataset's files are, for its labels."""
    given = read_yaml(folder.config_file)
    if "method" not in given:
        raise InputError(f"{folder.config_file} names no method; it is not the file of a run")
    settings = merge(Config().model_dump(mode="json"), given)  # a run of an older version lacks some
    records = tuple(folder.records())
    if not records:
        raise InputError(
            f"{folder.path} has no rounds yet; wait for the first, or train it with: "
            f"gapsl resume {folder.path}"
        )
    result = folder.result()
    network = read_yaml(folder.network_file) if folder.network_file.exists() else {}
    if network.get("data") == "own":
        settings = merge(settings, {"partition": OWN_DATA})
        labels, reason = declared_labels(folder, settings)
    else:
        labels, reason = read_labels(folder, settings, data_dir)
    return Run(
        settings=settings,
        records=records,
        total_rounds=result.rounds if result is not None else planned_rounds(settings, records[-1]),
        finished=result is not None,
        labels=labels,
        unseen=unseen(records, reason),
        names=tuple(network.get("names") or ()),
    )


def planned_rounds(settings: Mapping[str, Any], last: RoundRecord) -> int:
    """Return how many rounds an unfinished run is to have."""
    if settings.get("rounds") is not None:
        return int(settings["rounds"])
    per_epoch = max(1, round(last.round / last.epoch)) if last.epoch > 0 else 1
    return int(settings.get("epochs") or DEFAULT_EPOCHS) * per_epoch


def read_labels(
    folder: RunFolder, settings: Mapping[str, Any], data_dir: str | None
) -> tuple[Labels | None, str]:
    """Return who has how many samples of each class, or None and why it is not known."""
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
        devices = json.loads(folder.fleet_file.read_text(encoding="utf-8"))["devices"]
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


def unseen(records: tuple[RoundRecord, ...], no_labels: str) -> tuple[str, ...]:
    """Say what could not be examined, and why."""
    found = [f"labels ({no_labels})"] if no_labels else []
    if records[-1].norms is None:
        found.append("how long gradients are (recorded by later versions only)")
    if not any(record.evaluation is not None for record in records):
        found.append("accuracy (there has been no evaluation yet)")
    return tuple(found)
