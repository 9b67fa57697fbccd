"""A tracking server that is away: training goes on, to the same bits, and is delayed by seconds."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import time
from collections import deque

import pytest
from quick import QUICK

import gapsl
from gapsl.common.errors import InputError
from gapsl.run import mlflow_tracker
from gapsl.run.mlflow_tracker import MLflow, Numbers, bounded, first_of
from gapsl.run.observers import Started

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="MLflow is not installed")


@pytest.fixture
def silent(monkeypatch):
    """The address of a server that takes connections and never answers."""
    monkeypatch.setitem(mlflow_tracker.VARIABLES, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


@pytest.fixture
def closed(monkeypatch):
    """The address of nobody."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{unused.getsockname()[1]}")
        yield


@pytest.mark.parametrize("server", ["silent", "closed"])
def test_a_server_that_is_away_is_named_once_and_ends_nothing(server, request, caplog, tmp_path):
    request.getfixturevalue(server)
    import mlflow  # noqa: F401 - its import takes seconds, which are not what is measured

    whole = gapsl.train(**QUICK)
    begun = time.monotonic()
    result = gapsl.train(**QUICK, observers=["mlflow"], out=tmp_path / "run")
    assert time.monotonic() - begun < 15
    assert result.final.weights_sha256 == whole.final.weights_sha256
    warnings = [record.getMessage() for record in caplog.records if record.name == "gapsl"]
    assert [text.partition(":")[0] for text in warnings] == [
        "MLflow is tried again once per minute, and training goes on without it", "MLflow"
    ]  # fmt: skip
    assert "127.0.0.1" in warnings[0]
    assert warnings[1] == "MLflow: rounds 1 to 4 were not sent"
    assert not (tmp_path / "run" / "mlflow.json").exists()


def test_without_a_server_and_without_a_database_there_is_no_place_to_log_to(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "sqlalchemy" else found(name)
    )
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match="set MLFLOW_TRACKING_URI"):
        gapsl.train(**QUICK, observers=["mlflow"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    MLflow.check()


def test_mlflows_own_variables_outrank_ours_and_ours_do_not_stay(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with bounded():
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_a_message_has_no_more_than_the_server_takes():
    waiting = deque(Numbers(round, 0, {str(name): 0.0 for name in range(30)}) for round in range(1, 100))
    first = list(first_of(waiting))
    assert [one.round for one in first] == list(range(1, 33))  # 960 of 1000; the final evaluation needs some


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', "\x00"])
def test_a_damaged_note_of_the_servers_run_is_none(text, tmp_path):
    (tmp_path / "mlflow.json").write_text(text, "utf-8")
    assert MLflow(tmp_path)._noted() == ""
    (tmp_path / "mlflow.json").write_text(json.dumps({"run_id": "abc"}), "utf-8")
    assert MLflow(tmp_path)._noted() == "abc"
    assert MLflow(None)._noted() == ""


def test_rounds_are_kept_for_a_server_that_is_away_up_to_a_number(closed, monkeypatch):
    monkeypatch.setattr(mlflow_tracker, "BACKLOG", 2)
    tracker = MLflow()
    tracker.started(Started("psl", 0, 2, 1, 9, 3))
    for round in (1, 2, 3, 3, 2):
        tracker.round(
            gapsl.RoundRecord(
                round=round, epoch=1.0, loss=2.0, losses={}, bytes_sent={}, bytes_received={}, seconds={}
            )
        )
    assert [one.round for one in tracker._waiting] == [2, 3]
