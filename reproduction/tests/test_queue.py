"""The queue with real workers: failures are stored, plans grow with results, a lost worker is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gapsl_reproduction.queue import Queue, Standing
from gapsl_reproduction.runs import RunSpec, Wanted, run_spec
from gapsl_reproduction.store import Result, Store
from gapsl_reproduction.summary import summarise
from processes import rounds_done, weights_of, workers_of

import gapsl
from gapsl.analysis.progress import Step
from gapsl.analysis.workers import run_supply
from gapsl.run.folder import RunFolder

TINY = {
    "dataset": "digits", "model": "mlp", "width": 0.25, "train_samples": 200, "test_samples": 50,
    "devices": 3, "rounds": 5, "batch_size": 8, "evaluate_every": 5, "method": "psl",
}  # fmt: skip
DIVERGES = {"server_optimizer": {"lr": 1e9}}


class Watching:
    """Listens to workers and queue."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []
        self.standing: Standing | None = None
        self.at_round: dict[str, Any] = {}

    def start(self, name: str, first: int, total: int) -> None:
        pass

    def advance(self, name: str, step: Step) -> None:
        if name in self.at_round:
            self.at_round.pop(name)()

    def warn(self, name: str, message: str) -> None:
        pass

    def stored(self, run: RunSpec, result: Result, standing: Standing) -> None:
        self.ended.append((run.key, "failed" if "failed" in result else "stored"))
        self.standing = standing

    def gave_up(self, run: RunSpec, message: str) -> None:
        self.ended.append((run.key, message))


class Place:
    """A store, a work folder, and queues that are worked off one after another."""

    def __init__(self, path: Path) -> None:
        self.store, self.work = Store(path / "results", mend=True), path / "work"

    def queue(self, runs: Sequence[RunSpec], watching: Watching, **options: bool) -> Queue:
        return Queue(lambda: Wanted(runs), self.store, self.work, watching, **options)

    def work_off(self, queue: Queue, watching: Watching) -> None:
        run_supply(queue, workers=1, display=watching, stop=lambda: False)


def test_one_worker_does_all_its_runs_as_if_each_were_alone_and_a_failure_is_a_result(
    tmp_path: Path,
) -> None:
    good, bad, last = (
        run_spec(TINY),
        run_spec(TINY, DIVERGES),
        run_spec(TINY, {"method": "gapsl", "dropout": 0.0, "seed": 1}),
    )
    place, watching, pids = Place(tmp_path), Watching(), set[int]()
    for run in (good, bad, last):
        watching.at_round[run.name] = lambda: pids.update(workers_of(place.work))
    queue = place.queue([good, bad, last], watching)
    place.work_off(queue, watching)

    assert watching.ended == [(good.key, "stored"), (bad.key, "failed"), (last.key, "stored")]
    assert len(pids) == 1, "torch is imported once"
    assert watching.standing is not None and len(watching.standing.done) == watching.standing.total == 3
    assert not queue.errors
    failed = place.store.get(bad.key)
    assert failed is not None
    assert "all devices were outliers" in failed["failed"]
    assert list(place.work.iterdir()) == []
    for run in (good, last):  # a run before it in the process, a failed one even, leaves no trace
        alone = gapsl.train(run.config, out=tmp_path / run.key)
        result = place.store.get(run.key)
        assert alone is not None and result is not None
        assert result["final"]["weights_sha256"] == weights_of(tmp_path / run.key)

    again = Watching()
    place.work_off(place.queue([good, bad, last], again), again)
    assert again.ended == [], "what failed is not tried for ever"
    place.work_off(place.queue([good, bad, last], again, retry_failed=True), again)
    assert again.ended == [(bad.key, "failed")], "but once more if asked for"


def test_what_a_kill_left_of_a_stored_run_is_removed_but_not_what_was_to_stay(tmp_path: Path) -> None:
    left, kept = run_spec(TINY), run_spec(TINY, {"seed": 1})
    place, watching = Place(tmp_path), Watching()
    for run, keep in ((left, False), (kept, True)):
        queue = place.queue([run], watching, keep=keep)
        job = queue.take()
        assert job is not None
        gapsl.resume(job.folder)
        if keep:
            queue.ended(job, 0, None)
        else:  # killed after the result was stored, before its folder went
            place.store.put(summarise(run, RunFolder(job.folder)))
    place.queue([left, kept], watching)
    assert [folder.name for folder in place.work.iterdir()] == [kept.key]


def test_a_plan_that_wants_more_when_something_has_ended(tmp_path: Path) -> None:
    """The next seed is wanted when the one before it is stored, three in all."""
    runs = [run_spec(TINY, {"seed": seed}) for seed in range(3)]
    place, watching = Place(tmp_path), Watching()

    def plan() -> Wanted:
        done = sum(place.store.get(run.key) is not None for run in runs)
        return Wanted(runs[: done + 1], runs[done + 1 :])

    queue = Queue(plan, place.store, place.work, watching)
    standing = queue.standing()
    assert (len(standing.done), len(standing.waiting), standing.total) == (0, 3, 3)
    place.work_off(queue, watching)
    assert [key for key, _ in watching.ended] == [run.key for run in runs]


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_run_alone_and_the_next_queue_goes_on(tmp_path: Path) -> None:
    first, second = run_spec(TINY, {"rounds": 400, "checkpoint_every": 1}), run_spec(TINY)
    place, watching = Place(tmp_path), Watching()
    watching.at_round[first.name] = lambda: os.kill(workers_of(place.work)[0], signal.SIGKILL)
    queue = place.queue([first, second], watching)
    place.work_off(queue, watching)
    assert watching.ended[0][0] == first.key and "code -9" in watching.ended[0][1]
    assert watching.ended[1:] == [(second.key, "stored")]
    assert [code for _, code, _ in queue.errors.values()] == [-signal.SIGKILL]
    assert place.store.get(first.key) is None
    assert rounds_done(place.work / first.key) >= 1, "what it did is kept"


@pytest.mark.parametrize("left", ["nothing", "half a folder", "another run"])
def test_whatever_is_in_a_runs_folder_it_is_laid_out_for_this_run(tmp_path: Path, left: str) -> None:
    run = run_spec(TINY)
    place = Place(tmp_path)
    folder = place.work / run.key
    if left == "half a folder":
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("interrupted", encoding="utf-8")
    elif left == "another run":
        other = run_spec(TINY, {"rounds": 1})
        gapsl.train(other.config, out=folder)
    job = place.queue([run], Watching()).take()
    assert job is not None and job.folder == folder
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "environment.json"]
    assert gapsl.resume(folder) is not None
    assert rounds_done(folder) == 5


def test_a_folder_in_which_another_process_trains_is_waited_for(tmp_path: Path) -> None:
    busy, free = run_spec(TINY), run_spec(TINY, {"seed": 1})
    place = Place(tmp_path)
    folder = RunFolder.create(place.work / busy.key, busy.config, {})
    queue = place.queue([busy, free], Watching())
    with folder.locked():
        first = queue.take()
        assert first is not None and first.folder.name == free.key, "the other one meanwhile"
        assert queue.take() is None
        assert queue.left, "there will be another"
    second = queue.take()
    assert second is not None and second.folder.name == busy.key
    assert not queue.left
