"""Reading a run's files: old fields, missing numbers, scores from angles, and whose the halves are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed import evaluated, healthy

from gapsl.analysis.diagnosis.reading import read_labels, read_round, scheduled
from gapsl.data import Partition, load_source
from gapsl.run.folder import RunFolder

RECORD: dict[str, Any] = {
    "round": 3,
    "epoch": 0.5,
    "loss": 1.5,
    "losses": {"0": 1.0, "2": 2.0, "5": 1.5},
    "skipped": [1],
    "bytes_sent": [10, 20],
    "bytes_received": [1, 2],
    "seconds": {"server": 1.0},
    "averaged": False,
}
EVALUATION: dict[str, Any] = {
    "round": 3,
    "split": "test",
    "device_mean": 0.5,
    "ensemble": 0.6,
    "merged": None,
    "local": None,
    "device_accuracy": [0.4, 0.6],
    "class_accuracy": [0.5, None],
}


def test_a_record_of_an_older_version_has_no_norms_and_its_evaluation_no_drift() -> None:
    read = read_round({**RECORD, "evaluation": EVALUATION})
    assert read.present == {0, 1, 2, 5}
    assert (read.norms, read.kept, read.scores, read.angle, read.sent) == (None, None, {}, None, 30)
    assert read.evaluation is not None
    assert read.evaluation.drift is None


def test_numbers_that_were_not_finite_are_left_out() -> None:
    evaluation = {**EVALUATION, "drift": [0.5, None]}
    read = read_round({**RECORD, "loss": None, "norms": {"0": 1.0, "2": None}, "evaluation": evaluation})
    assert (read.loss, read.norms) == (None, {0: 1.0})
    assert read.evaluation is not None
    assert read.evaluation.drift == {0: 0.5}


def test_probes_are_read_where_there_are_any() -> None:
    read = read_round(RECORD)
    assert (read.apart, read.probe_scores, read.probe_leaders) == (None, {}, None)
    probed = {"apart": 0.02, "probe_scores": {"0": 0.1, "2": 0.3, "5": 0.2}, "probe_leaders": [0, 5]}
    read = read_round({**RECORD, **probed})
    assert (read.apart, read.probe_leaders) == (0.02, frozenset({0, 5}))
    assert read.probe_scores == {0: 0.1, 2: 0.3, 5: 0.2}


def test_scores_are_recorded_or_follow_from_the_angles_by_device_id() -> None:
    angles = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]]
    assert read_round({**RECORD, "angles": angles}).scores == {0: 1.5, 2: 1.25, 5: 1.75}
    assert read_round({**RECORD, "angles": angles, "scores": [1, 2, 3]}).scores == {0: 1, 2: 2, 5: 3}


@pytest.mark.parametrize(
    ("settings", "rounds"), [({"rounds": 70}, 70), ({"epochs": 4}, 24), ({"rounds": None}, 120)], ids=str
)
def test_how_long_an_unfinished_run_is_to_be(settings: dict[str, Any], rounds: int) -> None:
    assert scheduled(settings, read_round(RECORD)) == rounds


def test_labels_are_counted_only_for_the_data_that_was_divided(tmp_path: Path) -> None:
    source = load_source("digits")
    every = np.arange(len(source.train))
    folder = RunFolder(tmp_path)
    reasons = {}
    for fingerprint in (source.train_fingerprint, "of something else"):
        Partition(
            devices=(every[:1000], every[1000:]),
            validation=every[:0],
            shift=None,
            spec="iid",
            seed=0,
            samples=len(every),
            fingerprint=fingerprint,
        ).save(folder.partition_file)
        labels, reasons[fingerprint] = read_labels(folder, {"dataset": "digits"}, None)
        if labels is not None:
            assert labels.counts.sum(axis=1).tolist() == [1000, 437]
    assert reasons[source.train_fingerprint] == ""
    assert "not of the digits" in reasons["of something else"]


def test_a_run_without_its_partition_has_no_labels(tmp_path: Path) -> None:
    labels, reason = read_labels(RunFolder(tmp_path), {"dataset": "digits"}, None)
    assert labels is None
    assert "cannot read the partition" in reason


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("psl", True),
        ("gapsl", True),
        ("frozen", False),
        ("sfl", False),
        ("vanilla", False),
        ("central", False),
    ],
)
def test_whose_the_halves_are_follows_from_the_method(method: str, own: bool) -> None:
    assert healthy(method=method).own_halves == own


def test_whose_the_halves_are_in_a_method_of_ones_own_follows_from_what_they_predict() -> None:
    run = healthy(method="mine")
    assert run.own_halves
    assert not evaluated(run, lambda e: {"device_accuracy": (0.5,) * 4}).own_halves
