"""When a round closes: each policy by its name, and what is said where there is no such policy."""

import math

import pytest

from gapsl.common.errors import InputError
from gapsl.network.protocol.settings import RoundPolicy, parse_round_policy


@pytest.mark.parametrize("text", ["all", "quorum:0.8", "fraction:0.5", "deadline:3"])
def test_a_round_with_everybody_closes_at_once(text):
    assert parse_round_policy(text).closes(asked=4, arrived=4, seconds=0.0)


@pytest.mark.parametrize("text", ["all", "quorum:0.01", "fraction:0.01", "deadline:3"])
def test_a_round_with_nobody_never_closes(text):
    assert not parse_round_policy(text).closes(asked=4, arrived=0, seconds=1e9)


def test_all_waits_for_everybody_however_long():
    closing = parse_round_policy("all")
    assert closing.waits_for_all
    assert not closing.closes(asked=4, arrived=3, seconds=1e9)


@pytest.mark.parametrize(
    ("share", "asked", "enough"),
    [(0.5, 4, 2), (0.5, 5, 3), (0.75, 4, 3), (0.1, 4, 1), (1.0, 4, 4), (0.3, 10, 3), (0.7, 10, 7)],
)
def test_a_fraction_closes_with_so_many_and_not_before(share, asked, enough):
    closing = parse_round_policy(f"fraction:{share}")
    assert not closing.waits_for_all
    assert [closing.closes(asked, n, 0.0) for n in range(asked + 1)] == [
        n >= enough for n in range(asked + 1)
    ]


def test_a_deadline_closes_with_whom_it_has_when_its_time_is_up():
    closing = parse_round_policy("deadline:3")
    assert not closing.waits_for_all
    assert not closing.closes(asked=4, arrived=3, seconds=2.9)
    assert closing.closes(asked=4, arrived=1, seconds=3.0)


def test_a_deadline_may_wait_for_some_however_late_it_is():
    closing = parse_round_policy("deadline:3", least=2)
    assert not closing.closes(asked=4, arrived=1, seconds=1e9)
    assert closing.closes(asked=4, arrived=2, seconds=3.0)
    assert closing.closes(asked=1, arrived=1, seconds=0.0), "where fewer were asked, they are enough"


def test_a_quorum_waits_for_everybody_up_to_three_times_what_it_takes_itself():
    closing = parse_round_policy("quorum:0.8")
    assert not closing.waits_for_all
    round = closing.of_round(10, 2.0)
    assert not round.closes(asked=10, arrived=9, seconds=5.9)
    assert round.closes(asked=10, arrived=8, seconds=6.0)
    assert not round.closes(asked=10, arrived=7, seconds=1e9), "fewer are no quorum"


def test_before_the_pace_is_known_a_quorum_waits_a_minute_and_never_less_than_a_second():
    """So that a run goes on that was started again while one device is away."""
    closing = parse_round_policy("quorum:0.8")
    assert not closing.of_round(10, None).closes(asked=10, arrived=9, seconds=59)
    assert closing.of_round(10, None).closes(asked=10, arrived=9, seconds=60)
    assert closing.of_round(10, 0.01).seconds == 1.0


@pytest.mark.parametrize("text", ["all", "fraction:0.5", "deadline:3"])
def test_other_policies_know_no_pace(text):
    assert parse_round_policy(text).of_round(10, 2.0) == parse_round_policy(text)


def test_time_alone_closes_under_a_deadline_only():
    assert parse_round_policy("deadline:3").seconds == 3.0
    assert parse_round_policy("all").seconds == parse_round_policy("fraction:0.5").seconds == math.inf


def test_the_default_waits_for_all():
    assert RoundPolicy() == parse_round_policy("all")


@pytest.mark.parametrize(
    "text",
    [
        "", "al", "all:3", "fraction", "fraction:", "fraction:0", "fraction:-1", "fraction:1.5",
        "fraction:nan", "fraction:half", "deadline", "deadline:0", "deadline:-3", "deadline:inf",
        "deadline:nan", "deadline:3s", "quorum", "quorum:2", "quorum:0",
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused_with_what_may_be_written(text):
    with pytest.raises(
        InputError, match=r"all, quorum:SHARE, fraction:SHARE \(0 to 1\) or deadline:SECONDS"
    ) as refusal:
        parse_round_policy(text)
    assert repr(text) in str(refusal.value)


def test_a_share_of_next_to_nothing_is_one_device():
    assert not parse_round_policy("fraction:1e-10").closes(3, 0, 1e9)
    assert parse_round_policy("fraction:1e-10").closes(3, 1, 0)
