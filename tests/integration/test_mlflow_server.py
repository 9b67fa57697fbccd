"""Runs on a real MLflow tracking server, read back through its own client."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet
from processes import TINY, Launcher, records_of, result_of, rounds_done
from quick import QUICK

import gapsl
from gapsl.run import mlflow_tracker
from gapsl.run.config import flat
from gapsl.run.folder import RunFolder
from gapsl.run.records import RoundRecord

try:
    version("mlflow")  # mlflow-skinny has no server
except PackageNotFoundError:
    pytest.skip("MLflow's server is not installed", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)  # the server loads much before it answers

WORDS = {**QUICK, "method": "gapsl", "rounds": 6, "evaluate_every": 2, "checkpoint_every": 2}


class Server:
    """An MLflow tracking server on this machine, which can be ended and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.address, self._folder = f"http://127.0.0.1:{self._port}", folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        store = f"sqlite:///{self._folder / 'store.db'}"
        words = ["--backend-store-uri", store, "--host", "127.0.0.1", "--port", str(self._port)]
        with (self._folder / "log.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *words, "--workers", "1"],
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + 240
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "log.txt").read_text("utf-8")
                time.sleep(0.1)

    def stop(self) -> None:
        """End it, with the processes it has started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A tracking server, started once."""
    started = Server(tmp_path_factory.mktemp("mlflow"))
    started.start()
    try:
        import mlflow  # noqa: F401 - meanwhile: it takes seconds, too

        started.wait()
        yield started
    finally:
        started.stop()


@pytest.fixture
def tracked(server: Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of an experiment of its own, in MLflow's variables."""
    for name, value in variables(server, request.node.name).items():
        monkeypatch.setenv(name, value)
    return request.node.name


def variables(server: Server, experiment: str) -> dict[str, str]:
    """Return the variables by which MLflow finds an experiment."""
    patience = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}  # with a machine that does other things, too
    return {"MLFLOW_TRACKING_URI": server.address, "MLFLOW_EXPERIMENT_NAME": experiment, **patience}


def logged(experiment: str) -> list[Any]:
    """Return the runs of an experiment, by name."""
    from mlflow import MlflowClient

    client = MlflowClient()
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return sorted(client.search_runs([found.experiment_id]), key=lambda run: str(run.info.run_name))


def history(run: Any, metric: str) -> list[tuple[int, float]]:
    """Return all that was logged of a metric, a step and a value each."""
    from mlflow import MlflowClient

    found = MlflowClient().get_metric_history(run.info.run_id, metric)
    return sorted((one.step, one.value) for one in found)


def assert_logged(run: Any, folder: Path) -> None:
    """A server's run has what the folder's records and result have, each round once."""
    records, result = records_of(folder), result_of(folder)
    assert history(run, "train/loss") == [(r.round, r.loss) for r in records]
    assert history(run, "bytes/sent") == [(r.round, sum(r.bytes_sent.values())) for r in records]
    evaluated = [r for r in records if r.evaluation is not None]
    for measure in ("device_mean", "ensemble", "test_loss"):
        expected = [(r.round, getattr(r.evaluation, measure)) for r in evaluated]
        assert history(run, f"accuracy/{measure}") == expected
        assert history(run, f"final/{measure}") == [(result.rounds, getattr(result.final, measure))]
    assert run.info.status == "FINISHED"
    assert run.data.tags["gapsl.weights_sha256"] == result.final.weights_sha256
    assert run.data.tags["gapsl.round"] == str(result.rounds)


def test_a_run_goes_on_in_the_servers_run_after_it_was_stopped_and_rolled_back(
    tracked: str, tmp_path: Path
) -> None:
    folder, rounds = tmp_path / "run", iter(range(1, 9))
    assert gapsl.train(**WORDS, observers=["mlflow"], out=folder, stop=lambda: next(rounds) == 5) is None
    (run,) = logged(tracked)
    assert run.info.status == "KILLED"
    assert [step for step, _ in history(run, "train/loss")] == [1, 2, 3, 4, 5]
    shutil.rmtree(folder / "checkpoints" / "round-000005")  # as if it had been killed before
    result = gapsl.resume(folder)
    assert result is not None
    assert [record.round for record in records_of(folder)] == [1, 2, 3, 4, 5, 6]
    (run,) = logged(tracked)
    assert_logged(run, folder)
    selections = [record.selection for record in records_of(folder)]
    assert history(run, "gapsl/ratio") == [(i, s.ratio) for i, s in enumerate(selections, 1) if s is not None]
    settings = flat(RunFolder(folder).settings())
    assert run.data.params.keys() == settings.keys()
    assert run.data.params["gapsl.eta"] == str(settings["gapsl.eta"])
    assert run.data.params["rounds"] == "6"
    assert run.info.run_name == "run" and run.data.tags["gapsl.method"] == "gapsl"


@pytest.mark.slow
def test_a_run_that_had_no_tracker_is_logged_from_its_first_round_and_further_when_extended(
    tracked: str, tmp_path: Path
) -> None:
    folder, rounds = tmp_path / "run", iter(range(1, 9))
    assert gapsl.train(**WORDS, out=folder, stop=lambda: next(rounds) == 3) is None
    assert gapsl.resume(folder, observers=["mlflow"]) is not None
    (run,) = logged(tracked)
    assert_logged(run, folder)
    assert gapsl.resume(folder, observers=["mlflow"], rounds=8) is not None
    (run,) = logged(tracked)
    assert [step for step, _ in history(run, "train/loss")] == list(range(1, 9))
    assert [step for step, _ in history(run, "final/device_mean")] == [6, 8]
    assert run.data.params["extended_to"] == "null"  # settings stay as they were first


@pytest.mark.slow
def test_a_run_that_fails_and_one_without_files(tracked: str) -> None:
    assert gapsl.train(**WORDS, observers=["mlflow"]) is not None

    def fails() -> bool:
        raise gapsl.TrainingStopped("no more")

    with pytest.raises(gapsl.TrainingStopped):
        gapsl.train(**{**WORDS, "label": "will fail"}, observers=["mlflow"], stop=fails)
    good, bad = logged(tracked)
    assert (good.info.run_name, good.info.status) == ("gapsl", "FINISHED")
    assert len(history(good, "train/loss")) == 6
    assert (bad.info.run_name, bad.info.status) == ("will fail", "FAILED")
    assert len(history(bad, "train/loss")) == 1


@pytest.mark.slow
def test_a_run_that_was_deleted_on_the_server_is_begun_again_there(tracked: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folder, rounds = tmp_path / "run", iter(range(1, 9))
    assert gapsl.train(**WORDS, observers=["mlflow"], out=folder, stop=lambda: next(rounds) == 4) is None
    MlflowClient().delete_run(logged(tracked)[0].info.run_id)
    assert gapsl.resume(folder) is not None
    (run,) = logged(tracked)
    assert_logged(run, folder)


@pytest.mark.slow
def test_workers_of_a_comparison_and_a_kill(
    tracked: str, server: Server, cli: Launcher, tmp_path: Path
) -> None:
    env = variables(server, tracked)
    words = [*TINY, "--set", "observers=[mlflow]", "--methods", "psl,gapsl", "--workers", "2"]
    ended = cli.run("compare", *words, "--out", tmp_path / "both", env=env)
    assert ended.code == 0, ended.stderr
    for run, name in zip(logged(tracked), ("gapsl-seed0", "psl-seed0"), strict=True):
        assert run.info.run_name == name
        assert_logged(run, tmp_path / "both" / name)

    folder = tmp_path / "killed"
    words = [*TINY, "--rounds", "400", "--set", "observers=[mlflow]", "--out", str(folder)]
    command = cli.start("train", *words, env=env)
    while rounds_done(folder) < 250:
        assert command.running
        time.sleep(0.02)
    command.kill()
    ended = cli.run("resume", folder, env=env)
    assert ended.code == 0, ended.stderr
    (run,) = [run for run in logged(tracked) if run.info.run_name == "killed"]
    assert_logged(run, folder)


@pytest.mark.slow
def test_a_fleet_is_logged_by_its_server(tracked: str, server: Server, cli: Launcher, tmp_path: Path) -> None:
    with Fleet(cli, tmp_path, {"observers": ["mlflow"]}) as fleet:
        fleet.environments["server"] = variables(server, tracked)
        fleet.start()
        fleet.finish()
    (run,) = logged(tracked)
    assert_logged(run, fleet.run)


@pytest.mark.slow
def test_what_a_server_missed_is_sent_when_it_is_there_again(
    tracked: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(mlflow_tracker, "AGAIN", 0.0)
    monkeypatch.setattr(mlflow_tracker, "EVERY", 0.0)

    class Outage(gapsl.Observer):
        def round(self, record: RoundRecord) -> None:
            if record.round == 2:
                server.stop()
            if record.round == 4:
                server.start()
                server.wait()

    folder = tmp_path / "run"
    assert gapsl.train(**WORDS, observers=[Outage(), "mlflow"], out=folder) is not None
    (run,) = logged(tracked)
    assert_logged(run, folder)
    warnings = [one.getMessage() for one in caplog.records if one.name == "gapsl" and one.levelno >= 30]
    assert len(warnings) == 1 and "training goes on without it" in warnings[0]
