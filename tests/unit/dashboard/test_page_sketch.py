"""Some records show the whole run before all are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from long_runs import made_run

from gapsl.dashboard.record_index import RecordIndex
from gapsl.dashboard.sketch import locate, sketch_of


def index_of(path: Path) -> RecordIndex:
    found = RecordIndex(path)
    found.read_on()
    return found


@pytest.mark.parametrize("every", [10, 7, None])
def test_a_sketch_has_rounds_of_the_whole_run_and_its_evaluations(tmp_path: Path, every: int | None) -> None:
    path = made_run(tmp_path / "a", rounds=500, devices=25) / "records.jsonl"
    whole, some = index_of(path), sketch_of(path, every, most=50)
    rounds = list(some.rounds["round"])
    assert rounds == sorted(set(rounds)) and rounds[0] == 1 and rounds[-1] == 500
    assert 30 <= len(rounds) <= 53
    assert some.rounds["bytes"][-1] == whole.rounds["bytes"][-1]
    assert some.devices["kept"] == pytest.approx(whole.devices["kept"])
    if every == 10:
        assert list(some.evaluations["round"]) == list(whole.evaluations["round"])


def test_a_sketch_of_a_file_that_is_written_leaves_its_last_line_out(tmp_path: Path) -> None:
    path = made_run(tmp_path / "a", rounds=50, devices=3) / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert sketch_of(path, 10).rounds["round"][-1] == 49
    path.write_bytes(b"")
    assert sketch_of(path, 10).last is None


def test_every_round_is_found_by_guessing(tmp_path: Path) -> None:
    path = made_run(tmp_path / "a", rounds=200, devices=30, evaluate_every=50) / "records.jsonl"
    whole = index_of(path)
    size = path.stat().st_size
    starts = np.cumsum([0, *map(len, path.read_bytes().splitlines(keepends=True))])
    with path.open("rb") as file:
        assert [locate(file, size, 200, t) for t in range(1, 201)] == list(starts[:-1])
        assert locate(file, size, 200, 500) is None
    assert whole.lines == 200
