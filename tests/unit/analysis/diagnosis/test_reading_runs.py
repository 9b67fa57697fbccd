"""Reading a run's files: old fields, missing numbers, scores from angles, and whose the halves are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed import evaluated, healthy

from gapsl.analysis.diagnosis.evidence import Round
from gapsl.analysis.diagnosis.reading import read_labels, read_round, scheduled
from gapsl.data import Partition, load_source
from gapsl.run.folder import RunFolder
from gapsl.run.records import RoundRecord

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
    "epoch": 0.5,
    "split": "test",
    "device_mean": 0.5,
    "device_std": 0.1,
    "device_min": 0.4,
    "device_max": 0.6,
    "ensemble": 0.6,
    "merged": None,
    "local": None,
    "device_accuracy": [0.4, 0.6],
    "class_accuracy": [0.5, None],
    "bytes_sent": [10, 20],
    "bytes_received": [1, 2],
    "seconds": 2.0,
}


def read(record: dict[str, Any]) -> Round:
    return read_round(RoundRecord.from_dict(record))


def test_a_record_of_an_older_version_has_no_norms_and_its_evaluation_no_drift() -> None:
    found = read({**RECORD, "evaluation": EVALUATION})
    assert found.present == {0, 1, 2, 5}
    assert (found.norms, found.kept, found.scores, found.angle, found.sent) == (None, None, {}, None, 30)
    assert found.evaluation is not None
    assert found.evaluation.drift is None


def test_numbers_that_were_not_finite_are_left_out() -> None:
    evaluation = {**EVALUATION, "drift": [0.5, None]}
    found = read({**RECORD, "loss": None, "norms": {"0": 1.0, "2": None}, "evaluation": evaluation})
    assert (found.loss, found.norms) == (None, {0: 1.0})
    assert found.evaluation is not None
    assert found.evaluation.drift == {0: 0.5}


def test_probes_are_read_where_there_are_any() -> None:
    found = read(RECORD)
    assert (found.apart, found.probe_scores, found.probe_leaders) == (None, {}, None)
    probed = {"apart": 0.02, "probe_scores": {"0": 0.1, "2": 0.3, "5": 0.2}, "probe_leaders": [0, 5]}
    found = read({**RECORD, **probed})
    assert (found.apart, found.probe_leaders) == (0.02, frozenset({0, 5}))
    assert found.probe_scores == {0: 0.1, 2: 0.3, 5: 0.2}


def test_scores_are_recorded_or_follow_from_the_angles_by_device_id() -> None:
    angles = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]]
    assert read({**RECORD, "angles": angles}).scores == {0: 1.5, 2: 1.25, 5: 1.75}
    assert read({**RECORD, "angles": angles, "scores": [1, 2, 3], "kept": [0], "leader": [2]}).scores == {
        0: 1,
        2: 2,
        5: 3,
    }


@pytest.mark.parametrize(
    ("settings", "rounds"), [({"rounds": 70}, 70), ({"epochs": 4}, 24), ({"rounds": None}, 120)], ids=str
)
def test_how_long_an_unfinished_run_is_to_be(settings: dict[str, Any], rounds: int) -> None:
    assert scheduled(settings, read(RECORD)) == rounds


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
