"""`gapsl reproduce` with real processes: done once, killed, stopped, damaged, and always the same results."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from gapsl_reproduction.catalogue import EXPERIMENTS, find
from gapsl_reproduction.plan import planned, ranked, trials, wanted
from gapsl_reproduction.scales import SCALES
from gapsl_reproduction.store import Store
from processes import Command, Ended, Launcher, hold, release, rounds_done, strict_json

WHAT = ("selection-ratio",)  # 8 trials of 3 rounds, and 4 runs of 6 at the rates that they choose
RUNS = 12
SMOKE = SCALES["smoke"]


class Place:
    """Where a reproduction keeps its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.results, self.work = path / "results" / "smoke", path / "runs" / "reproduce" / "smoke"

    def start(self, cli: Launcher, *args: str, what: tuple[str, ...] = WHAT) -> Command:
        return cli.start("reproduce", *what, "--scale", "smoke", "--workers", "1", *args, cwd=self.path)

    def run(self, cli: Launcher, *args: str, what: tuple[str, ...] = WHAT) -> Ended:
        return self.start(cli, *args, what=what).wait()

    def files(self) -> dict[str, Path]:
        return {path.stem: path for path in sorted((self.results / "runs").glob("*.json"))}

    def stored(self) -> dict[str, Any]:
        return {key: lasting(strict_json(path.read_text("utf-8"))) for key, path in self.files().items()}

    def begun(self) -> list[Path]:
        """Return the folders of runs that have done a round, and have one to do after the one they are in."""
        return [
            folder for folder in self.work.glob("*") if 0 < rounds_done(folder) < rounds_to_do(folder) - 1
        ]


def rounds_to_do(folder: Path) -> int:
    """Return how many rounds a run is to have (a trial has fewer than others), 0 if it ended meanwhile."""
    try:
        settings = (folder / "config.yaml").read_text("utf-8")
    except FileNotFoundError:  # the folder of a run goes when its result is stored
        return 0
    found = re.search(r"^rounds: (\d+)$", settings, re.M)
    assert found is not None
    return int(found[1])


def lasting(value: Any) -> Any:
    """Return a result without what a clock said, or a machine."""
    if isinstance(value, dict):
        return {
            key: lasting(item) for key, item in value.items() if key not in ("seconds", "elapsed", "made")
        }
    return [lasting(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="session")
def whole(cli: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A reproduction that nothing disturbed."""
    place = Place(tmp_path_factory.mktemp("whole"))
    ended = place.run(cli)
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    lines = re.findall(
        r"^\[(\d+)/(\d+)\] digits/small .* seed 0 #\w{4}: \d+\.\d % in 0:\d\d", ended.stdout, re.M
    )
    assert [int(done) for done, _ in lines] == list(range(1, RUNS + 1)), "a line a finished run"
    assert {int(total) for _, total in lines} == {RUNS}, "the total is known before the rates are"
    return place


def copy_of(place: Place, path: Path) -> Place:
    shutil.copytree(place.path, path)
    return Place(path)


def test_it_stores_what_the_experiments_want_and_leaves_no_folders(whole: Place) -> None:
    found = wanted(find(WHAT), SMOKE, Store(whole.results).get)
    assert not found.open
    assert set(whole.files()) == {run.key for run in found.runs}
    assert list(whole.work.iterdir()) == []
    assert {"results.md", "results-appendix.md", "runs"} <= {path.name for path in whole.results.iterdir()}


def test_it_writes_a_page_of_what_it_found(whole: Place) -> None:
    text = (whole.results / "results.md").read_text("utf-8")
    stored = Store(whole.results).get
    for each in planned(find(WHAT), SMOKE, stored):
        result = stored(each.run.key)
        assert result is not None
        if each.cell.condition == "alpha 0.1":
            assert f"{100 * result['final']['device_mean']:.1f}" in text


def test_runs_have_the_rates_with_the_best_validation_accuracy(whole: Place) -> None:
    stored = Store(whole.results).get
    for each in planned(find(WHAT), SMOKE, stored):
        tried = trials(SMOKE.workloads["cifar10"], each.cell.line)
        validated = {}
        for candidate, run in tried.items():
            result = stored(run.key)
            assert result is not None
            validated[candidate] = result["final"]["validation"]["device_mean"]
        best = max(validated, key=lambda candidate: validated[candidate])
        assert each.chosen == best
        assert (ranked(tried, stored) or [])[0] == best
        assert each.run.config.device_optimizer.lr == best.rates.device


def test_what_is_there_is_not_done_again(cli: Launcher, whole: Place) -> None:
    before = {key: path.stat() for key, path in whole.files().items()}
    ended = whole.run(cli)
    assert ended.code == 0, ended.stderr
    assert f"{RUNS} of {RUNS} runs are done" in ended.stdout
    assert "[" not in ended.stdout
    assert {key: path.stat() for key, path in whole.files().items()} == before


def test_killed_and_started_again_at_once_it_ends_with_the_same_results(
    cli: Launcher, whole: Place, tmp_path: Path
) -> None:
    place = Place(tmp_path / "killed")
    command = place.start(cli, "--workers", "2")
    reached = command.until(lambda: len(place.files()) >= 2 and place.begun(), "a run half done")
    assert reached, command.stdout
    command.kill()
    done = {key: path.stat().st_mtime_ns for key, path in place.files().items()}
    assert 2 <= len(done) < RUNS
    assert any(place.work.iterdir()), "a run was under way"
    ended = place.run(cli)  # while the workers of the one that was killed may finish their round
    assert ended.code == 0, ended.stderr
    assert place.stored() == whole.stored()
    assert {key: result["final"]["weights_sha256"] for key, result in place.stored().items()} == {
        key: result["final"]["weights_sha256"] for key, result in whole.stored().items()
    }
    assert {key: place.files()[key].stat().st_mtime_ns for key in done} == done, "and nothing twice"
    assert list(place.work.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_after_the_round_and_the_same_command_goes_on(
    cli: Launcher, whole: Place, tmp_path: Path
) -> None:
    place = Place(tmp_path / "stopped")
    command = place.start(cli)

    def held_half_way() -> bool:
        if not place.begun():
            return False
        (worker,) = command.children()
        hold(worker)
        if not place.begun():  # it ended meanwhile
            os.kill(worker, signal.SIGCONT)
        return bool(place.begun())

    assert command.until(held_half_way, "a run half done"), command.stdout
    command.signal(signal.SIGINT, group=True)  # as a terminal does
    release(*command.children(), after=signal.SIGINT)
    ended = command.wait()
    assert ended.code == 130, ended.stderr
    assert "repeat the command" in ended.stdout
    assert "Traceback" not in ended.stderr
    left = [folder for folder in place.work.iterdir() if (folder / "checkpoints").exists()]
    assert left and len(place.files()) < RUNS

    ended = place.run(cli, "--keep-runs")
    assert ended.code == 0, ended.stderr
    assert re.search(r"going on from round [1-5] of [36]$", ended.stdout, re.M)
    assert place.stored() == whole.stored()
    assert (left[0] / "result.json").is_file(), "--keep-runs"


def test_damaged_results_are_set_aside_told_and_made_again(
    cli: Launcher, whole: Place, tmp_path: Path
) -> None:
    place = copy_of(whole, tmp_path / "damaged")
    whole_runs = [path for path in place.files().values() if '"rounds":6' in path.read_text("utf-8")]
    cut, older, changed = whole_runs[:3]  # no trials, on which other runs depend
    cut.write_bytes(cut.read_bytes()[:100])
    older.write_text(older.read_text("utf-8").replace('"schema": 1', '"schema": 0'), "utf-8")
    changed.write_text(changed.read_text("utf-8").replace('"rounds":6', '"rounds":7'), "utf-8")
    broken = (cut, older, changed)
    kept = {key: path.stat().st_mtime_ns for key, path in place.files().items() if path not in broken}

    ended = place.run(cli, "--plan")
    assert ended.code == 0
    assert f"{RUNS - 3} of {RUNS} runs are done; about 0:0" in ended.stdout
    assert len(place.files()) == RUNS, "a plan changes nothing"

    ended = place.run(cli)
    assert ended.code == 0, ended.stderr
    for path in (cut, older, changed):
        assert f"{path.relative_to(place.path)} " in ended.stderr
        assert path.with_name(path.name + ".damaged").is_file()
    assert place.stored() == whole.stored()
    assert {key: place.files()[key].stat().st_mtime_ns for key in kept} == kept


def test_two_at_once_are_refused_kindly(cli: Launcher, tmp_path: Path) -> None:
    place = Place(tmp_path / "busy")
    with Store(place.results).locked():
        ended = place.run(cli)
    assert ended.code == 4
    assert "another gapsl reproduce is working on results/smoke" in " ".join(ended.stderr.split())
    assert "repeat the command" in ended.stderr


def test_a_plan_says_what_would_run_and_a_list_what_there_is(
    cli: Launcher, whole: Place, tmp_path: Path
) -> None:
    ended = Place(tmp_path / "new").run(cli, "--plan", "--seeds", "3")
    assert ended.code == 0, ended.stderr
    assert len(re.findall(r"^digits/small .*seed 0", ended.stdout, re.M)) == 8
    assert "12 more, with the learning rates that these will choose" in ended.stdout
    assert "smoke: 0 of 20 runs are done; no run was measured yet" in ended.stdout
    assert not list((tmp_path / "new").iterdir())

    listed = cli.run("reproduce", "--list", "--scale", "smoke")
    assert listed.code == 0, listed.stderr
    for experiment in EXPERIMENTS.values():
        assert re.search(rf"^{experiment.name} +{experiment.shows} .* \d+$", listed.stdout, re.M), (
            experiment.name
        )
    assert "core: table1, protocol, length" in listed.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["tabel1"], ["unknown experiment 'tabel1'", "did you mean 'table1'?"]),
        (["table1", "--scale", "standart"], ["unknown scale 'standart'", "did you mean 'standard'?"]),
        (["table1", "--scale", "reduced"], ["too small", "use standard"]),
        ([], ["say what to reproduce", "--list"]),
        (["table1", "--scale", "smoke", "--device", "tpu"], ["unknown device 'tpu'"]),
    ],
)
def test_what_cannot_be_reproduced_is_refused(
    cli: Launcher, tmp_path: Path, args: list[str], words: list[str]
) -> None:
    ended = cli.run("reproduce", *args, cwd=tmp_path)
    assert ended.code == 2
    assert ended.stderr.startswith("error: ")
    for word in words:
        assert word in ended.stderr
    assert not list(tmp_path.iterdir())


def test_data_that_is_not_there_is_told_before_anything_starts(cli: Launcher, tmp_path: Path) -> None:
    """Also that --data-dir is looked into: a damaged file in it is found."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-10-binary.tar.gz").write_bytes(b"not an archive")
    ended = cli.run(
        "reproduce", "protocol", "--scale", "standard", "--data-dir", tmp_path / "data", cwd=tmp_path,
        env={"HOME": str(tmp_path), "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert ended.code == 2, ended.stdout
    assert "cifar" in ended.stderr
    assert not (tmp_path / "runs").exists()
