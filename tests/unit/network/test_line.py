"""Between the server and a device: nothing asked is lost, nothing is asked twice at once."""

import pytest

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server.device_link import Line, late
from gapsl.network.server.session import Due, Inbox, Session


def forward(round, turn=0):
    return wire.ToDevice(forward=wire.Forward(round=round, turn=turn, learn=True))


def backward(round, turn=0):
    return wire.ToDevice(backward=wire.Backward(round=round, turn=turn, step=True))


SAVE = wire.ToDevice(save=wire.Save(round=5))
ASK = wire.ToDevice(ask=wire.Ask())
BEGIN = wire.ToDevice(begin=wire.Begin(round=5))


def here(line, **ready):
    """Connect the device anew."""
    line.session = Session(0, "cam", Inbox())
    line.ready = wire.Ready(**ready)
    return line


def sent(line):
    """Return what the device was sent in this connection, and end it."""
    line.session.close()
    messages = list(line.session.outgoing())
    line.session = None
    return messages


@pytest.fixture
def line():
    return here(Line("cam"))


def test_a_device_is_free_when_it_is_there_and_owes_nothing(line):
    assert line.free
    line.ask(forward(1), Due("upload"))
    assert not line.free
    line.answered()
    assert line.free
    line.session = None
    assert not line.free


def test_one_command_at_a_time(line):
    line.ask(forward(1), Due("upload"))
    line.ask(SAVE, Due("done"))
    assert sent(line) == [forward(1)]


def test_the_next_command_follows_the_answer(line):
    line.ask(forward(1), Due("upload"))
    line.ask(SAVE, Due("done"))
    assert line.answered().kind == "forward"
    assert sent(line) == [forward(1), SAVE]


def test_what_is_asked_of_a_device_that_is_away_waits_for_it():
    line = Line("cam")
    line.ask(forward(1), Due("upload"))
    line.ask(SAVE, Due("done"))
    here(line).came_back()
    assert sent(line) == [forward(1)]


def test_what_was_not_answered_is_sent_again(line):
    line.ask(forward(1), Due("upload"))
    assert sent(line) == [forward(1)]
    here(line).came_back()
    assert sent(line) == [forward(1)]
    here(line).came_back()
    line.answered()
    assert sent(line) == [forward(1)]
    here(line).came_back()
    assert sent(line) == [], "and what was answered is not"


def test_beginning_comes_before_all_that_was_asked(line):
    line.ask(forward(6), Due("upload"))
    sent(line)
    here(line).ask_first(BEGIN, Due("done"))
    line.answered()
    assert sent(line) == [BEGIN, forward(6)]


def test_news_for_a_device_that_is_away_are_kept_by_nobody():
    line = Line("cam")
    line.inform(backward(1))
    here(line).came_back()
    assert sent(line) == []


# --- the reply to an upload


def test_a_reply_that_was_lost_is_sent_again_with_its_bytes(line):
    line.reply = (backward(3, 1), [memoryview(b"gradient")])
    line.inform(*line.reply)
    assert sent(line) == [backward(3, 1), b"gradient"]
    here(line, round=3, turn=1, waiting=True).came_back()
    assert sent(line) == [backward(3, 1), b"gradient"]


def test_a_reply_that_arrived_is_not(line):
    line.reply = (backward(3, 1), [])
    sent(line)
    here(line, round=3, turn=1, waiting=False).came_back()
    assert sent(line) == []


def test_a_reply_goes_before_the_next_command(line):
    line.reply = (backward(3), [])
    line.ask(SAVE, Due("done"))
    sent(line)
    here(line, round=3, waiting=True).came_back()
    assert sent(line) == [backward(3), SAVE]


def test_an_upload_whose_round_was_closed_is_answered_late(line):
    line.reply = (backward(2), [])
    sent(line)
    here(line, round=3, turn=1, waiting=True).came_back()
    assert sent(line) == [late(3, 1)]


def test_a_device_that_never_had_a_reply_is_answered_late_too(line):
    sent(line)
    here(line, round=1, waiting=True).came_back()
    assert sent(line) == [late(1, 0)]


def test_an_upload_that_was_lost_on_its_way_is_asked_for_again_and_is_not_late(line):
    line.ask(forward(3, 1), Due("upload"))
    sent(line)
    here(line, round=3, turn=1, waiting=True).came_back()
    assert sent(line) == [forward(3, 1)]


def test_an_upload_that_is_here_and_will_have_its_reply_is_not_late(line):
    sent(line)
    here(line, round=3, turn=1, waiting=True).came_back(pending=(3, 1))
    assert sent(line) == []
    here(line, round=3, turn=0, waiting=True).came_back(pending=(3, 1))
    assert sent(line) == [late(3, 0)]


def test_an_upload_for_another_turn_than_is_asked_for_is_late(line):
    line.ask(forward(3, 1), Due("upload"))
    sent(line)
    here(line, round=3, turn=0, waiting=True).came_back()
    assert sent(line) == [late(3, 0), forward(3, 1)]


def test_news_take_nothing_from_what_is_due(line):
    """The last command's answer is still expected when the device hears something in between."""
    line.ask(ASK, Due("status"))
    line.inform(late(3, 0))
    session = line.session
    assert sent(line) == [ASK, late(3, 0)]
    assert session._due == Due("status")
