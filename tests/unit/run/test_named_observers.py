"""Observers that a setting names: told of every round, and no part of what makes a run this run."""

from __future__ import annotations

from typing import ClassVar

import pytest
import yaml
from quick import QUICK

import gapsl
from gapsl.analysis.compare import only_here
from gapsl.analysis.workers import Job
from gapsl.common.errors import InputError
from gapsl.methods.registry import METHODS
from gapsl.run.api import compose
from gapsl.run.config import differing
from gapsl.run.named_observers import OBSERVERS


class Heard(gapsl.Observer):
    """Keeps what it is told."""

    made: ClassVar[list[Heard]] = []

    def __init__(self, folder=None):
        super().__init__(folder)
        self.rounds = []
        self.made.append(self)

    def round(self, record):
        self.rounds.append(record.round)


@pytest.fixture
def heard(monkeypatch):
    """The observer `heard`, and those of it that were made."""
    monkeypatch.setattr(OBSERVERS, "_entries", {**OBSERVERS._entries})
    monkeypatch.setattr(Heard, "made", [])
    gapsl.register_observer("heard", Heard)
    return Heard.made


def test_a_named_observer_hears_of_every_round_and_has_the_runs_folder(heard, tmp_path):
    gapsl.train(**{**QUICK, "rounds": 3}, observers=["heard"], out=tmp_path / "run")
    assert [one.rounds for one in heard] == [[1, 2, 3]]
    assert heard[0].folder == tmp_path / "run"
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["observers"] == ["heard"]


def test_names_and_objects_are_told_alike_and_without_files_there_is_no_folder(heard):
    mine = Heard()
    gapsl.train(**{**QUICK, "rounds": 2}, observers=["heard", mine, "tensorboard"])
    assert [(one.folder, one.rounds) for one in heard] == [(None, [1, 2])] * 2


def test_a_run_goes_on_with_other_observers_to_the_same_bits(heard, tmp_path):
    words = {**QUICK, "rounds": 4}
    whole = gapsl.train(**words)
    assert gapsl.train(**words, observers=["heard"], out=tmp_path / "run", stop=lambda: True) is None
    result = gapsl.resume(tmp_path / "run", tensorboard=True)
    assert result.final.weights_sha256 == whole.final.weights_sha256
    assert [one.rounds for one in heard] == [[1], [2, 3, 4]]
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
    assert not differing(compose(words=words), compose(words={**words, "observers": ["heard"]}))


def test_an_unknown_observer_is_refused_before_anything_is_written(heard, tmp_path):
    with pytest.raises(InputError, match=r"unknown observer 'herd'; did you mean 'heard'\?.*--plugin"):
        gapsl.train(**QUICK, observers=["herd"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_an_observer_that_cannot_work_here_says_so_before_anything_is_written(name, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"pip install .gapsl\[{name}\]"):
        gapsl.train(**QUICK, observers=[name], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_observer_hears_the_settings_and_how_a_run_ends(heard, monkeypatch):
    told = []
    for hook in ("started", "failed", "closed"):
        monkeypatch.setattr(Heard, hook, lambda self, *values, hook=hook: told.append((hook, *values)))
    assert gapsl.train(**QUICK, observers=["heard"], stop=lambda: True) is None
    assert [hook for hook, *_ in told] == ["started", "closed"]
    assert told[0][1].settings == {**compose(words=QUICK).resolved(), "observers": ["heard"]}

    def ends():
        raise gapsl.TrainingStopped("no more")

    told.clear()
    with pytest.raises(gapsl.TrainingStopped) as raised:
        gapsl.train(**QUICK, observers=["heard"], stop=ends)
    assert told[1:] == [("failed", raised.value), ("closed",)]


def test_an_observer_of_this_program_alone_needs_a_fork(heard, tmp_path):
    job = Job("a", tmp_path, compose(words={**QUICK, "observers": ["heard"]}))
    assert only_here([job], {})
    assert not only_here([Job("a", tmp_path, compose(words={**QUICK, "tensorboard": True}))], {})


def test_an_observer_that_fails_is_told_no_more_and_the_run_goes_on(heard, monkeypatch, caplog):
    def fail(self, record):
        self.rounds.append(record.round)
        raise OSError("no room")

    words = {**QUICK, "rounds": 3}
    whole = gapsl.train(**words)
    monkeypatch.setattr(Heard, "round", fail)
    result = gapsl.train(**words, observers=["heard"])
    assert result.final.weights_sha256 == whole.final.weights_sha256
    assert [one.rounds for one in heard] == [[1]]
    assert "the observer heard failed, and is told no more: OSError: no room" in caplog.text


def test_so_is_one_that_is_given_as_an_object(monkeypatch, caplog):
    class Failing:
        """All that an observer is asked for, and no Observer."""

        def __getattr__(self, hook):
            if hook == "known_as":
                raise AttributeError(hook)
            return lambda *values: 1 / 0 if hook == "round" else None

    assert gapsl.train(**QUICK, observers=[Failing()]) is not None
    assert "the observer Failing failed, and is told no more: ZeroDivisionError" in caplog.text


def test_an_observer_that_cannot_begin_is_named(heard, monkeypatch):
    monkeypatch.setattr(Heard, "__init__", lambda self, folder: 1 / 0)
    with pytest.raises(InputError, match=r"observer heard cannot begin \(ZeroDivisionError: .*leave it out"):
        gapsl.train(**QUICK, observers=["heard"])


@pytest.mark.parametrize("entry", [dict, Heard, gapsl.Strategy.step, "psl"])
def test_a_method_that_is_no_strategy_is_refused(entry):
    with pytest.raises(TypeError, match=r"is not a method: give a subclass of gapsl\.Strategy"):
        gapsl.register_method("other", entry)
    assert "other" not in METHODS


def test_an_observer_that_is_none_is_refused(heard):
    with pytest.raises(TypeError, match=r"is not an observer: give a subclass of gapsl\.Observer"):
        gapsl.register_observer("other", print)
