"""From a run's files to evidence; what an older version did not record is simply not there."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.analysis.diagnosis.evidence import Evaluation, Evidence, Labels, Round
from gapsl.common.errors import InputError
from gapsl.data import load_partition, load_source
from gapsl.device.build import limited
from gapsl.run import records
from gapsl.run.build import DEFAULT_EPOCHS
from gapsl.run.config import Config, merge, read_yaml
from gapsl.run.folder import RunFolder
from gapsl.run.records import RoundRecord

OWN_DATA = "own data"  # in place of a partition, where devices bring theirs


def read_evidence(folder: RunFolder, data_dir: str | None = None) -> Evidence:
    """Read all that a run's files say; `data_dir` is where the dataset's files are, for its labels."""
    given = read_yaml(folder.config_file)
    if "method" not in given:
        raise InputError(f"{folder.config_file} names no method; it is not the file of a run")
    settings = merge(Config().model_dump(mode="json"), given)  # a run of an older version lacks some
    rounds = tuple(read_round(record) for record in folder.records())
    if not rounds:
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
    return Evidence(
        settings=settings,
        rounds=rounds,
        total_rounds=result.rounds if result is not None else scheduled(settings, rounds[-1]),
        finished=result is not None,
        labels=labels,
        unseen=unseen(rounds, reason),
        names=tuple(network.get("names") or ()),
    )


def read_round(record: RoundRecord) -> Round:
    """Return what a diagnosis reads of a record."""
    chosen, probes, found = record.selection, record.probes, record.evaluation
    leaders = None if probes is None else probes.leaders
    return Round(
        number=record.round,
        epoch=record.epoch,
        loss=record.loss,
        losses=record.losses,
        skipped=frozenset(record.skipped),
        norms=record.norms,
        kept=None if chosen is None else frozenset(chosen.kept),
        scores=record.scores,
        dispersion=None if chosen is None else chosen.dispersion,
        angle=record.angle_mean,
        averaged=record.averaged,
        seconds=record.seconds,
        sent=sum(record.bytes_sent.values()),
        received=sum(record.bytes_received.values()),
        evaluation=None if found is None else read_evaluation(found),
        apart=None if probes is None else probes.apart,
        probe_scores={} if probes is None else probes.scores,
        probe_leaders=None if leaders is None else frozenset(leaders),
        absent=frozenset(record.events.absent),
    )


def read_evaluation(found: records.Evaluation) -> Evaluation:
    """Return what a diagnosis reads of an evaluation."""
    devices = max([*found.bytes_sent, *found.device_accuracy], default=-1) + 1
    return Evaluation(
        round=found.round,
        split=found.split,
        device_mean=found.device_mean,
        # Where devices are tested on samples of their own, nobody adds up what they make of the same ones.
        ensemble=found.device_mean if found.ensemble is None else found.ensemble,
        merged=found.merged,
        local=found.local,
        device_accuracy=tuple(found.device_accuracy.get(device) for device in range(devices)),
        class_accuracy=found.class_accuracy,
        drift=found.drift,
    )


def scheduled(settings: Mapping[str, Any], last: Round) -> int:
    """Return how many rounds an unfinished run is to have."""
    if settings.get("rounds") is not None:
        return int(settings["rounds"])
    per_epoch = max(1, round(last.number / last.epoch)) if last.epoch > 0 else 1
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
        classes = load_source(
            str(settings["dataset"]), data_dir=settings.get("data_dir"), download=False
        ).classes
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


def unseen(rounds: tuple[Round, ...], no_labels: str) -> tuple[str, ...]:
    """Say what could not be examined, and why."""
    found = [f"labels ({no_labels})"] if no_labels else []
    evaluations = [round.evaluation for round in rounds if round.evaluation is not None]
    older = [
        name
        for name, missing in (
            ("how far the halves have moved", evaluations and evaluations[-1].drift is None),
            ("how long gradients are", rounds[-1].norms is None),
        )
        if missing
    ]
    if older:
        found.append(f"{' and '.join(older)} (recorded by later versions only)")
    if not evaluations:
        found.append("accuracy (there has been no evaluation yet)")
    return tuple(found)
