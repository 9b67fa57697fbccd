"""Runs are followed through all that may happen to their files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from long_runs import lines, made_run
from made_results import result

from gapsl.common.errors import InputError
from gapsl.dashboard import watch as watching
from gapsl.dashboard.answers import angles, curves, devices, overview
from gapsl.dashboard.comparison import comparison
from gapsl.dashboard.fleet import states
from gapsl.dashboard.watch import Watch
from gapsl.run.folder import RunFolder


def changed_last(run: Path, **others: Any) -> None:
    """Let the last record say something else."""
    *before, last = (run / "records.jsonl").read_text().splitlines()
    text = json.dumps(json.loads(last) | others)
    (run / "records.jsonl").write_text("\n".join([*before, text]) + "\n")


def test_a_run_finishes_is_extended_and_goes_on(tmp_path: Path) -> None:
    path = made_run(tmp_path / "run", rounds=20, devices=2)
    watch = Watch([path])
    watch.read_on()
    (run,) = watch.runs
    assert (run.state, run.total, run.final) == ("stopped", 20, None)
    folder = RunFolder.open(path)
    folder.write_result(result("gapsl", 0, 0.7, rounds=20))
    before = run.version
    watch.read_on()
    assert run.state == "finished" and run.final is not None and run.version > before
    config, _ = folder.config()
    folder.extend(config.model_copy(update={"extended_to": 50}), {})
    watch.read_on()
    assert (run.state, run.total, run.final) == ("stopped", 50, None)
    with folder.locked():
        watch.read_on()
        assert run.state == "running"


def test_a_long_file_is_sketched_until_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONG", 1000)
    path = made_run(tmp_path / "run", rounds=400, devices=3)
    watch = Watch([path])
    watch.read_on(seconds=0)
    (run,) = watch.runs
    assert run.reading is not None
    assert overview(watch)["runs"][0]["round"] == 400, "the end is shown at once"
    assert len(curves(run)["evaluations"]["device_mean"]) == 40
    assert devices(run)["estimated"] and angles(run)["rounds"][-1] == 400
    watch.read_all()
    assert run.reading is None and not devices(run)["estimated"]


@pytest.mark.parametrize("end", ["", "half a reco", "damage\n"])
def test_a_sketch_ends_however_the_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(watching, "LONG", 1000)
    path = made_run(tmp_path / "run", rounds=50, devices=3)
    with (path / "records.jsonl").open("a") as file:
        file.write(end)
    watch = Watch([path])
    watch.read_on()
    watch.read_all()
    (run,) = watch.runs
    assert run.reading is None and run.full.lines == 50
    assert bool(run.trouble) == (end == "damage\n")


def test_a_run_that_is_gone_or_unreadable_is_said_and_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    first, second = (made_run(tmp_path / name, rounds=5, devices=2) for name in ("a", "b"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "config.yaml").write_text("devices: 2\n")
    watch = Watch([tmp_path])
    watch.read_on()
    assert len(watch.runs) == 2 and "names no method" in overview(watch)["refused"][0]
    (first / "records.jsonl").unlink()
    (first / "records.jsonl").mkdir()
    (second / "result.json").write_text("{")
    watch.read_on()
    one, other = overview(watch)["runs"]
    assert "cannot be read" in one["trouble"]
    assert "is not a result" in other["trouble"] and other["round"] == 5
    watch.read_all()
    assert "cannot be read" in overview(watch)["runs"][0]["trouble"], "as a report has it"
    (first / "records.jsonl").rmdir()
    os.mkfifo(first / "records.jsonl")
    watch.read_all()
    assert "it is no file" in overview(watch)["runs"][0]["trouble"], "and nobody waits for a pipe"
    with pytest.raises(InputError, match="no method"):
        Watch([tmp_path / "c"])


def test_a_state_is_what_the_last_round_did_with_a_device(tmp_path: Path) -> None:
    path = made_run(tmp_path / "run", rounds=3, devices=6)
    last = json.loads((path / "records.jsonl").read_text().splitlines()[-1])
    del last["losses"]["3"], last["losses"]["4"]
    changed_last(
        path, losses=last["losses"], skipped=[5], reasons={"5": "far"}, events={"absent": {"4": [0]}}
    )
    watch = Watch([path])
    watch.read_on()
    (run,) = watch.runs
    assert states(run, run.names()) == ["leader", "leader", "kept", "not drawn", "away", "skipped"]
    assert devices(run)["reasons"] == {"5": "far"}


def test_seeds_are_one_group_with_a_band_as_far_as_all_are(tmp_path: Path) -> None:
    for seed, rounds in ((0, 40), (1, 40), (2, 20)):
        path = made_run(tmp_path / f"gapsl-seed{seed}", rounds=40, devices=2, seed=seed)
        (path / "records.jsonl").write_text("".join(list(lines(40, 2, 10))[:rounds]))
        if rounds == 40:
            RunFolder.open(path).write_result(result("gapsl", seed, 0.7 + seed / 10))
    watch = Watch([tmp_path])
    watch.read_all()
    found = comparison(watch)
    (group,) = found["groups"]
    assert [len(seed["round"]) for seed in group["seeds"]] == [4, 4, 2]
    assert group["band"]["round"] == [10, 20]
    assert group["band"]["device_mean_sd"] == [0, 0]
    assert group["label"] == "GAPSL"


def test_a_run_that_is_named_twice_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made_run(tmp_path / "runs" / "a", rounds=3, devices=2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(path)
    watch = Watch([path, Path("runs"), Path("runs/a"), Path("link")])
    watch.read_on()
    assert len(watch.runs) == 1


def test_labels_that_come_later_are_shown(tmp_path: Path) -> None:
    path = made_run(tmp_path / "run", rounds=3, devices=2)
    (path / "network.yaml").write_text("data: own\n")
    watch = Watch([path])
    watch.read_on()
    (run,) = watch.runs
    assert devices(run)["labels"] is None
    said = {"devices": {str(device): {"labels": [4, device]} for device in range(2)}}
    (path / "fleet.json").write_text(json.dumps(said))
    watch.read_on()
    assert devices(run)["labels"] == [[4, 0], [4, 1]]


def test_what_nobody_thought_of_ends_the_reading_of_one_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        made_run(tmp_path / name, rounds=3, devices=2)
    watch = Watch([tmp_path])
    monkeypatch.setattr(watch.runs[0].full, "read_on", lambda seconds: 1 / 0)
    watch.read_on()
    one, other = overview(watch)["runs"]
    assert "division by zero" in one["trouble"] and other["round"] == 3
