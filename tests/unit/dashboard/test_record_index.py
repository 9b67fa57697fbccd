"""Records are read once, then read on, whatever happens to their file meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from long_runs import lines, made_run

from gapsl.common.errors import InputError
from gapsl.dashboard.record_index import RecordIndex
from gapsl.run.records import RoundRecord

FIXTURES = Path(__file__).parents[2] / "fixtures"


def index_of(path: Path) -> RecordIndex:
    found = RecordIndex(path)
    found.read_on()
    return found


def same(one: RecordIndex, other: RecordIndex) -> None:
    for name in one.rounds:
        assert np.array_equal(one.rounds[name], other.rounds[name], equal_nan=True), name
    for name in one.devices:
        assert np.array_equal(one.devices[name], other.devices[name]), name
    assert list(one.measured_at) == list(other.measured_at)
    assert list(one.evaluations["round"]) == list(other.evaluations["round"])


def test_reading_in_pieces_is_reading_at_once(tmp_path: Path) -> None:
    whole = (made_run(tmp_path / "a", rounds=40, devices=4) / "records.jsonl").read_bytes()
    growing = tmp_path / "records.jsonl"
    found = RecordIndex(growing)
    assert not found.read_on(), "there is no file yet"
    for end in range(0, len(whole) + 777, 777):  # mostly in the middle of a line
        growing.write_bytes(whole[:end])
        found.read_on()
        assert found.lines == whole[:end].count(b"\n")
    assert not found.read_on(), "nothing is new"
    same(found, index_of(tmp_path / "a" / "records.jsonl"))


def test_numbers_are_those_of_the_records(tmp_path: Path) -> None:
    found = index_of(made_run(tmp_path / "a", rounds=20, devices=6) / "records.jsonl")
    assert list(found.rounds["round"]) == list(range(1, 21))
    assert found.rounds["bytes"][-1] == 20 * 6 * 2 * 576
    assert found.rounds["seconds"][-1] == pytest.approx(20 * 0.4)
    assert list(found.devices["led"]) == [20, 20, 0, 0, 0, 0]
    assert list(found.devices["kept"]) == [20, 20, 20, 0, 0, 0]
    assert list(found.devices["excluded"]) == [0, 0, 0, 20, 20, 20]
    assert list(found.evaluations["device_mean"]) == [0.5, 1.0]
    assert found.traced == "angle to the leader"
    assert found.mean_angles()[0, 2] == pytest.approx(0.6)
    angles = found.angles_at(7)
    assert angles is not None and len(angles.devices) == 6


def test_a_device_s_seconds_are_means_of_the_records_that_tell_them(tmp_path: Path) -> None:
    found = index_of(made_run(tmp_path / "a", rounds=3, devices=3) / "records.jsonl")
    assert found.device_seconds(3) == {}, "an older version has not recorded them"
    told = ({"forward": {0: 0.1, 1: 0.2}}, {}, {"forward": {0: 0.3}, "waiting": {0: 1.0}})
    for line, spent in zip(lines(6, 3, 10, first=4), told, strict=True):
        found.add(replace(RoundRecord.from_line(line.encode()), device_seconds=spent), 0)
    means = found.device_seconds(3)
    assert means["forward"] == pytest.approx([0.2, 0.2, np.nan], nan_ok=True)
    assert means["waiting"] == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_run_that_went_back_is_read_anew(tmp_path: Path, replaced: bool) -> None:
    path = made_run(tmp_path / "a", rounds=30, devices=3) / "records.jsonl"
    found = index_of(path)
    kept = "".join(list(lines(30, 3, 10))[:12])
    if replaced:  # as the run does it
        (tmp_path / "draft").write_text(kept)
        (tmp_path / "draft").replace(path)
    else:
        path.write_text(kept)
    assert found.read_on()
    same(found, index_of(path))
    assert found.rounds["round"][-1] == 12
    with path.open("a") as file:
        file.writelines(lines(60, 3, 10, first=13))
    assert found.read_on()
    same(found, index_of(path))


def test_a_run_that_went_back_and_beyond_between_two_looks_is_read_anew(tmp_path: Path) -> None:
    path = made_run(tmp_path / "a", rounds=20, devices=3) / "records.jsonl"
    found = index_of(path)
    with path.open("r+") as file:  # the same file, and longer than before
        file.writelines(lines(90, 3, 7))
    assert found.read_on()
    assert found.rounds["round"][-1] == 90
    same(found, index_of(path))


def test_a_file_that_is_gone_is_a_run_without_records(tmp_path: Path) -> None:
    path = made_run(tmp_path / "a", rounds=5, devices=2) / "records.jsonl"
    found = index_of(path)
    path.unlink()
    assert found.read_on()
    assert found.last is None


@pytest.mark.parametrize("bad", [b"{}\n", b"no json\n", b'{"schema": 9, "round": 4}\n', b"\xff\xfe\n", b"\n"])
def test_a_damaged_line_is_named_and_what_was_before_it_stays(tmp_path: Path, bad: bytes) -> None:
    path = made_run(tmp_path / "a", rounds=3, devices=2) / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + bad + whole)
    found = index_of(path)
    assert found.lines == 3
    assert found.damage is not None and "damaged in line 4" in found.damage
    assert not found.read_on()


@pytest.mark.parametrize("name", ["finished", "unfinished", "comparison/psl-seed0", "network/run"])
def test_records_of_version_1_are_read(name: str) -> None:
    found = index_of(FIXTURES / name / "records.jsonl")
    assert found.damage is None
    assert found.lines > 0


def test_a_line_is_read_as_its_values_are() -> None:
    for line in (FIXTURES / "finished" / "records.jsonl").read_bytes().splitlines(keepends=True):
        old = RoundRecord.from_dict(json.loads(line))
        assert RoundRecord.from_line(line) == old
        new = json.dumps(old.to_dict()).encode()
        assert RoundRecord.from_line(new) == old
    with pytest.raises(InputError, match="round is wrong"):
        RoundRecord.from_line(b'{"schema": 2, "round": "x"}')


@pytest.mark.parametrize(
    "others",
    [
        {"round": 3},
        {"round": 10**400},
        {"losses": {"-1": 1.0}},
        {"losses": {str(10**12): 1.0}},
        {"bytes_sent": {"0": 10**400}},
        {"angles": {"devices": [0, 1, 2], "above": [[1.0], [], []]}},
        {"angles": {"devices": [-5, 1, 2], "above": [[1.0, 1.0], [1.0], []]}},
        {"angles": {"devices": [0, 1, 10**5], "above": [[1.0, 1.0], [1.0], []]}},
    ],
    ids=str,
)
def test_numbers_that_no_run_has_are_damage(tmp_path: Path, others: dict[str, object]) -> None:
    path = made_run(tmp_path / "a", rounds=3, devices=3) / "records.jsonl"
    (*_, last) = lines(4, 3, 10)
    with path.open("a") as file:
        file.write(json.dumps(json.loads(last) | others) + "\n")
    found = index_of(path)
    assert found.damage is not None and "line 4" in found.damage
    same(found, index_of(made_run(tmp_path / "b", rounds=3, devices=3) / "records.jsonl"))


def test_whoever_a_record_names_is_counted(tmp_path: Path) -> None:
    path = made_run(tmp_path / "a", rounds=3, devices=3) / "records.jsonl"
    (*_, last) = lines(4, 3, 10)
    record = json.loads(last)
    record["selection"]["leader"] = [9]
    record["angles"] = {"devices": [0, 11], "above": [[1.0], []]}
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    found = index_of(path)
    assert found.damage is None and found.devices["led"][9] == 1 and len(found.devices["led"]) == 12
