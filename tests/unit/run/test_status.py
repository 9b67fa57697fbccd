"""How a run stands, in words."""

import pytest
from quick import QUICK

import gapsl
from gapsl.common.errors import InputError
from gapsl.run.status import RunStatus


def test_a_finished_run_whose_records_are_damaged_is_finished_and_says_so(tmp_path):
    out = tmp_path / "run"
    gapsl.train(**{**QUICK, "rounds": 3}, out=out)
    assert len(gapsl.status(out).lines()) == 1
    records = out / "records.jsonl"
    records.write_bytes(records.read_bytes()[:-50])
    first, second = gapsl.status(out).lines()
    assert "finished, round 3 of 3" in first
    assert "records.jsonl ends at round 2: put it back from a copy" in second
    records.unlink()
    assert "ends at round 0" in gapsl.status(out).lines()[1]
    with pytest.raises(InputError, match=r"has no records; put records\.jsonl back from a copy"):
        gapsl.diagnose(out)


def test_who_is_waited_for_is_named_and_no_time_is_left_until_then():
    here = {"a": True, "b": False}
    run = RunStatus("run", "running", 3, total=10, pace=2.0, connected=here)
    assert run.lines() == [
        "run: running, round 3 of 10, 2 s per round, 0:00:14 left",
        "connected: a",
        "not connected: b",
    ]
    waits = RunStatus("run", "running", 3, total=10, pace=2.0, connected=here, waits=True)
    assert waits.lines()[:2] == ["run: running, round 3 of 10, 2 s per round", "waiting for b"]


def test_a_folder_that_is_not_there_is_a_path_to_check(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*nope; check the path"):
        gapsl.status(tmp_path / "nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no run in it"):
        gapsl.status(tmp_path / "empty")
