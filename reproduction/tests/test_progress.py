"""What is shown while many runs go on: lines where nobody watches, bars where somebody does."""

from __future__ import annotations

import io
import time

import pytest
from gapsl_reproduction.progress import Pace, QueueProgress
from gapsl_reproduction.queue import Standing
from gapsl_reproduction.runs import RunSpec, run_spec
from rich.console import Console

from gapsl.analysis.progress import Step

RUNS = [run_spec({"method": "psl", "rounds": 10, "seed": seed}) for seed in range(3)]


def result_of(run: RunSpec, **end: object) -> dict:
    done = end or {"final": {"device_mean": 0.4321}}
    return {"key": run.key, "config": run.settings, "rounds": 10, "elapsed": 100.0, **done}


def shown(console: Console, *, quiet: bool = False) -> str:
    """Show one run that ends well, a warning, and one that fails; another is left."""
    first, second, third = RUNS
    with QueueProgress(console, Pace(), workers=1, quiet=quiet) as progress:
        progress.begin(Standing(done=[], waiting=RUNS, running=[], errors=[]))
        for run in (first, second):
            progress.start(run.name, 3, 10)
            progress.advance(run.name, Step(3, 2.0))
            progress.advance(run.name, Step(4, None, 0.25))
        progress.warn(second.name, "device 3 skipped")
        progress.stored(first, result_of(first), Standing([first], [third], [second], []))
        failure = result_of(second, failed="no finite gradient")
        progress.stored(second, failure, Standing([first, second], [third], [], []))
        progress.gave_up(third, "ended with code -9")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_a_run_with_how_far_it_is_and_the_time_left() -> None:
    lines = shown(Console(file=io.StringIO(), width=60)).splitlines()
    assert lines[0] == "0 of 3 runs are done"
    assert f"{RUNS[0].name}: going on from round 2 of 10" in lines
    assert any(line.startswith(f"[1/3] {RUNS[0].name}: 43.2 % in 1:40 (") for line in lines)
    assert f"{RUNS[1].name}: device 3 skipped" in lines
    (failed,) = [line for line in lines if line.startswith("[2/3]")]
    assert failed.startswith(f"[2/3] {RUNS[1].name}: failed: no finite gradient (")
    assert failed.endswith("1:40 left)"), "one more run like those that were measured"
    assert lines[-1] == f"{RUNS[2].name}: ended with code -9"


def test_the_time_left_is_that_of_this_machine_once_a_run_tells_how_fast_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    first, second, third = RUNS
    console = Console(file=io.StringIO(), width=200)
    with QueueProgress(console, Pace([result_of(first)]), workers=1) as progress:
        progress.begin(Standing(done=[], waiting=RUNS, running=[], errors=[]))
        progress.start(first.name, 1, 10)
        for round in range(1, 11):
            now[0] += 1.0  # a tenth of the 100 s that such a run took elsewhere, on the whole
            progress.advance(first.name, Step(round, 2.0))
        progress.stored(
            first, {**result_of(first), "elapsed": 10.0}, Standing([first], [second, third], [], [])
        )
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "about 5:00 to go" in text and "0:11 left" in text, "55 s by the mean, a tenth of that here"


def test_quiet_says_only_what_went_wrong() -> None:
    lines = shown(Console(file=io.StringIO(), width=60), quiet=True).splitlines()
    assert len(lines) == 3
    assert all(word in line for word, line in zip(("skipped", "failed", "code -9"), lines, strict=True))


@pytest.mark.parametrize("width", [60, 120])
def test_bars_for_the_whole_and_for_what_goes_on(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    text = shown(console)
    assert "runs" in text and "2/3" in text and "rounds/s" in text
    assert "43.2 %" in text
    assert "\x1b[2K" in text, "lines are drawn over"
