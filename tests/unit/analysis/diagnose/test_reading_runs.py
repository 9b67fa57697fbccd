"""Reading a run's files: how long it is to be, whose labels, and whose the client-side models are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed import evaluated, healthy, healthy_record

from gapsl.analysis.diagnose import read_run
from gapsl.analysis.labels import read_labels
from gapsl.analysis.runs import RunSummary, planned_rounds
from gapsl.common.errors import InputError
from gapsl.data import Partition, load_source
from gapsl.run.folder import RunFolder


@pytest.mark.parametrize(
    ("settings", "rounds"), [({"rounds": 70}, 70), ({"epochs": 4}, 24), ({"rounds": None}, 120)], ids=str
)
def test_how_long_an_unfinished_run_is_to_be(settings: dict[str, Any], rounds: int) -> None:
    assert planned_rounds(settings, replace(healthy_record(3), epoch=0.5)) == rounds


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


@pytest.mark.parametrize("text", ["{{{", "rounds: 3"])
def test_damaged_settings_are_said_with_a_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    for read in (RunSummary.read, read_run):
        with pytest.raises(InputError, match=r"config\.yaml.*put it back from a copy of the folder"):
            read(RunFolder(tmp_path))


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
def test_whose_the_client_side_models_are_follows_from_the_method(method: str, own: bool) -> None:
    assert healthy(method=method).own_models == own


def test_whose_the_client_side_models_are_in_a_method_of_ones_own_follows_from_what_they_predict() -> None:
    run = healthy(method="not-registered-here")
    assert run.own_models
    assert not evaluated(run, lambda e: {"device_accuracy": dict.fromkeys(range(4), 0.5)}).own_models
