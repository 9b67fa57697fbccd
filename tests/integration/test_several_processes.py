"""A run in several processes that is killed or stopped: nobody is left behind, and it can be gone on with."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from faults import arranged
from processes import TINY, Launcher, records_of, result_of, timeless, wait_until

from conftest import Runs


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped by Ctrl-C"])
def test_its_processes_end_with_it_and_the_end_is_the_same(
    cli: Launcher, undisturbed: Runs, tmp_path: Path, how: signal.Signals
) -> None:
    folder = tmp_path / "run"
    stall = arranged("stall@recorded:round=7", tmp_path / "stalled")
    command = cli.start("train", *TINY, "--processes", "2", "--out", folder, env=stall)
    command.until_stalled()
    children = command.children()
    assert len(children) == 2
    command.signal(how, group=how == signal.SIGINT)  # as a terminal does
    command.signal(signal.SIGCONT)
    ended = command.wait()
    assert ended.code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in ended.stderr
    wait_until(lambda: gone(children), "the end of the processes")

    ended = cli.run("resume", folder, "--processes", "3")
    assert ended.code == 0, ended.stderr
    expected = undisturbed()
    assert timeless(records_of(folder)) == timeless(records_of(expected))
    ours, theirs = result_of(folder), result_of(expected)
    assert ours.final.weights_sha256 == theirs.final.weights_sha256
