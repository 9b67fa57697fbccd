"""What a server says of its run."""

import logging

import pytest

from gapsl.fleets.base import FleetEvents
from gapsl.run import serve
from gapsl.run.observers import Started
from gapsl.run.records import RoundRecord
from gapsl.run.serve import RoundLog


def record(round: int, *absent: int) -> RoundRecord:
    nothing: dict = {}
    return RoundRecord(
        round=round, epoch=0.0, loss=None, losses=nothing, bytes_sent=nothing, bytes_received=nothing,
        seconds=nothing, events=FleetEvents(absent=dict.fromkeys(absent, (0,))),
    )  # fmt: skip


def told(caplog: pytest.LogCaptureFixture, records: list[RoundRecord]) -> list[int]:
    with caplog.at_level(logging.INFO, "gapsl"):
        log = RoundLog(["a", "b"])
        log.started(Started("psl", 0, 2, 1, total_rounds=9, rounds_per_epoch=1))
        for one in records:
            log.round(one)
    return [line.fields["round"] for line in caplog.records if hasattr(line, "fields")]


def test_of_rounds_in_which_nothing_happens_one_per_second_is_told(caplog, monkeypatch) -> None:
    times = iter([0.0, 0.0, 0.4, 0.9, 1.1, 1.5, 2.2])
    monkeypatch.setattr(serve.time, "monotonic", lambda: next(times))
    assert told(caplog, [record(round) for round in range(1, 7)]) == [1, 4, 6]


def test_a_round_without_a_device_and_the_last_one_are_always_told(caplog, monkeypatch) -> None:
    monkeypatch.setattr(serve.time, "monotonic", lambda: 0.0)
    assert told(caplog, [record(1), record(2), record(3, 1), record(9)]) == [1, 3, 9]


def test_a_long_wait_does_not_count_for_good(caplog, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(serve.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "gapsl"):
        log = RoundLog(["a", "b"])
        log.started(Started("psl", 0, 2, 1, total_rounds=100, rounds_per_epoch=1))
        for round in range(1, 41):
            now[0] += 1000 if round == 5 else 1
            log.round(record(round))
    messages = [line.getMessage() for line in caplog.records if hasattr(line, "fields")]
    assert "(2e+02 s per round" in messages[4] and messages[-1].endswith("(1 s per round, 0:01:00 left)")
