"""Where the time goes: every second counts once, for what was done in it."""

from __future__ import annotations

import pytest

from gapsl.common import clock
from gapsl.common.clock import Clock, timed


class Hands:
    """A clock that a test sets."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(clock, "time", hands)
    return hands


def test_what_is_done_inside_something_else_counts_once(hands: Hands) -> None:
    spent: dict[str, float] = {}
    for _ in range(2):
        with timed(spent, "server"):
            hands.now += 1
            with timed(spent, "forward"):
                hands.now += 10
            with timed(spent, "server"):
                hands.now += 100
    assert spent == {"server": 202, "forward": 20}


def test_a_clock_begins_anew_when_it_is_read() -> None:
    found = Clock()
    found.add(1, {"forward": 1.0})
    found.add(1, {"forward": 2.0, "backward": 1.0})
    found.add(2, {"forward": 4.0})
    assert found.take() == {1: {"forward": 3.0, "backward": 1.0}, 2: {"forward": 4.0}}
    assert found.take() == {}
