"""Ctrl-C ends after the round with a checkpoint, a second one at once; what is left can be gone on with."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from faults import arranged
from processes import (
    TINY,
    Launcher,
    hold,
    records_of,
    result_of,
    rounds_done,
    timeless,
    wait_until,
    weights_of,
    workers_of,
)

from conftest import Runs


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


@pytest.mark.parametrize("group", [False, True], ids=["to the process", "to its group, as a terminal does"])
def test_ctrl_c_leaves_a_checkpoint_of_the_last_round_and_says_how_to_go_on(
    cli: Launcher, undisturbed: Runs, tmp_path: Path, group: bool
) -> None:
    folder = tmp_path / "run"
    stall = arranged("stall@recorded:round=7", tmp_path / "stalled")
    command = cli.start("train", *TINY, "--out", folder, env=stall)
    command.until_stalled()
    command.signal(signal.SIGINT, group=group)
    command.signal(signal.SIGCONT)
    ended = command.wait()

    assert ended.code == 130
    assert f"gapsl resume {folder}" in ended.stdout
    assert "Traceback" not in ended.stderr
    last = records_of(folder)[-1].round
    assert last == 7
    assert checkpoints(folder)[-1] == f"round-{last:06d}"
    assert not (folder / "result.json").exists()

    ended = cli.run("resume", folder)
    assert ended.code == 0, ended.stderr
    assert f"going on from round {last} of 40" in ended.stdout
    expected = undisturbed()
    assert timeless(result_of(folder)) == timeless(result_of(expected))
    assert timeless(records_of(folder)) == timeless(records_of(expected))


def test_a_second_ctrl_c_stops_at_once(cli: Launcher, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hang = arranged("hang@recorded:round=7", tmp_path / "hangs")  # before the round's checkpoint
    command = cli.start("train", *TINY, "--checkpoint-every", "1", "--out", folder, env=hang)
    assert command.until(lambda: rounds_done(folder) >= 7, "round 7"), command.stderr
    command.signal(signal.SIGINT)
    assert command.until(lambda: "again" in command.stderr, "the answer to Ctrl-C"), command.stdout
    command.signal(signal.SIGINT)
    ended = command.wait()

    assert ended.code == 130
    assert "Traceback" not in ended.stderr
    assert rounds_done(folder) == 7 and checkpoints(folder)[-1] == "round-000006", (
        "it finished the round first"
    )


def test_a_checkpoint_that_is_there_is_not_taken_away_to_be_written_again(tmp_path: Path) -> None:
    """A stop right after a checkpoint: a kill or a second Ctrl-C must find it there at every moment."""
    import gapsl

    folder, seen = tmp_path / "run", []

    def stop() -> bool:
        newest = folder / "checkpoints" / "round-000003"
        seen[:] = [newest.stat().st_ino] if newest.exists() else []
        return bool(seen)

    settings = {"model": "mlp", "devices": 3, "rounds": 9, "batch_size": 4, "test_samples": 60}
    assert gapsl.train(out=folder, checkpoint_every=3, stop=stop, **settings) is None
    assert seen == [(folder / "checkpoints" / "round-000003").stat().st_ino]


def test_resume_of_a_finished_run_is_done_and_changes_nothing(cli: Launcher, undisturbed: Runs) -> None:
    folder = undisturbed()
    before = (folder / "result.json").stat()
    ended = cli.run("resume", folder)
    assert ended.code == 0
    assert "finished already" in ended.stdout
    assert (folder / "result.json").stat() == before


@pytest.mark.slow
def test_a_comparison_is_stopped_by_ctrl_c_and_gone_on_with_by_resume(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    out = tmp_path / "comparison"
    runs = {"psl": out / "psl-seed0", "gapsl": out / "gapsl-seed0"}
    length = ["--rounds", "150"]  # long enough for both to be under way at once
    command = cli.start("compare", *TINY, *length, "--methods", "psl,gapsl", "--workers", "2", "--out", out)
    reached = command.until(
        lambda: all(rounds_done(folder) >= 3 for folder in runs.values()), "round 3 of each run"
    )
    assert reached, command.stderr
    assert len(workers_of(out)) == 2
    command.signal(signal.SIGINT, group=True)  # as a terminal does
    ended = command.wait()
    assert ended.code == 130, ended.stderr
    assert f"gapsl resume {out}" in ended.stdout
    assert workers_of(out) == []
    for folder in runs.values():
        assert checkpoints(folder)[-1] == f"round-{rounds_done(folder):06d}"
    assert any(rounds_done(folder) < 150 for folder in runs.values())

    ended = cli.run("resume", out, "--workers", "2")
    assert ended.code == 0, ended.stderr
    for name, folder in runs.items():
        assert weights_of(folder) == weights_of(undisturbed("--method", name, *length))

    ended = cli.run("resume", out)
    assert ended.code == 0, "a finished comparison is done"


def test_workers_whose_parent_was_killed_end_by_themselves_and_can_be_gone_on_with(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    out = tmp_path / "comparison"
    folder = out / "gapsl-seed0"
    command = cli.start("compare", *TINY, "--methods", "gapsl", "--out", out)
    assert command.until(lambda: rounds_done(folder) >= 3, "round 3"), command.stderr
    (worker,) = workers_of(out)
    hold(worker)  # or it might be done before its parent is killed
    command.kill()
    os.kill(worker, signal.SIGCONT)
    wait_until(lambda: workers_of(out) == [], "the end of the workers")
    assert not (folder / "result.json").exists()
    done = rounds_done(folder)
    assert checkpoints(folder)[-1] == f"round-{done:06d}", "a worker ends as after Ctrl-C"

    ended = cli.run("resume", out)
    assert ended.code == 0, ended.stderr
    assert weights_of(folder) == weights_of(undisturbed())


@pytest.mark.slow
def test_a_comparison_killed_while_it_lays_out_its_folders_is_completed_or_says_what_is_missing(
    cli: Launcher, tmp_path: Path
) -> None:
    out = tmp_path / "comparison"
    methods = ["psl", "sfl", "gapsl"]
    command = cli.start("compare", *TINY, "--rounds", "1", "--methods", ",".join(methods), "--out", out)
    assert command.until(lambda: (out / "psl-seed0" / "config.yaml").exists(), "the first folder")
    command.kill()
    wait_until(lambda: workers_of(out) == [], "the end of the workers")

    ended = cli.run("resume", out)
    finished = [name for name in methods if (out / f"{name}-seed0" / "result.json").exists()]
    missing = sorted(set(methods) - set(finished))
    assert not missing or (ended.code == 2 and "compare" in ended.stderr), f"done without {missing}"


@pytest.mark.slow
def test_ctrl_c_before_the_workers_are_ready_is_not_shown_as_a_failure(cli: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    command = cli.start("compare", *TINY, "--rounds", "2000", "--methods", "psl", "--out", out)
    assert command.until(lambda: workers_of(out), "a worker"), command.stderr
    command.signal(signal.SIGINT)
    ended = command.wait()
    assert ended.code == 130
    assert f"gapsl resume {out}" in ended.stdout
    assert workers_of(out) == []
    assert "ended with code" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_second_ctrl_c_stops_a_comparison_at_once(cli: Launcher, tmp_path: Path, number: int) -> None:
    out = tmp_path / "comparison"
    folder = out / "psl-seed0"
    command = cli.start("compare", *TINY, "--rounds", "2000", "--methods", "psl", "--out", out)
    assert command.until(lambda: rounds_done(folder) >= 1, "round 1"), command.stderr
    (worker,) = workers_of(out)
    hold(worker)  # in mid-round
    before = rounds_done(folder)
    command.signal(number)
    assert command.until(lambda: "again" in command.stderr, "the answer to Ctrl-C"), command.stdout
    command.signal(number)
    ended = command.wait()
    assert ended.code == 128 + number
    assert "Traceback" not in ended.stderr
    wait_until(lambda: workers_of(out) == [], "the end of the workers")
    assert rounds_done(folder) == before, "it finished the round first"


def test_sigterm_is_as_gentle_as_ctrl_c(cli: Launcher, tmp_path: Path) -> None:
    """What a cluster's scheduler sends before it kills."""
    folder = tmp_path / "run"
    stall = arranged("stall@recorded:round=3", tmp_path / "stalled")
    command = cli.start("train", *TINY, "--out", folder, env=stall)
    command.until_stalled()
    command.signal(signal.SIGTERM)
    command.signal(signal.SIGCONT)
    ended = command.wait()
    assert ended.code == 128 + signal.SIGTERM
    assert checkpoints(folder) == ["round-000003"] and rounds_done(folder) == 3
