"""Between the server and a device: nothing asked is lost, nothing is asked twice at once."""

import pytest

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server.device_link import DeviceLink, LinkState, late
from gapsl.network.server.session import ExpectedAnswer, Inbox, Session


def forward(round, turn=0):
    return wire.ToDevice(forward=wire.Forward(round=round, turn=turn, learn=True))


def backward(round, turn=0):
    return wire.ToDevice(backward=wire.Backward(round=round, turn=turn, step=True))


SAVE = wire.ToDevice(save=wire.Save(round=5))
ASK = wire.ToDevice(ask=wire.Ask())
BEGIN = wire.ToDevice(begin=wire.Begin(round=5))


def here(link, **ready):
    """Connect the device anew."""
    link.session = Session(0, "cam", Inbox())
    link.ready = wire.Ready(**ready)
    return link


def sent(link):
    """Return what the device was sent in this connection, and end it."""
    link.session.close()
    messages = list(link.session.outgoing())
    link.session = None
    return messages


@pytest.fixture
def link():
    return here(DeviceLink("cam"))


def test_a_device_is_free_when_it_is_there_and_owes_nothing(link):
    assert link.state is LinkState.IDLE
    link.ask(forward(1), ExpectedAnswer("upload"))
    assert link.state is not LinkState.IDLE
    link.answered()
    assert link.state is LinkState.IDLE
    link.session = None
    assert link.state is not LinkState.IDLE


def test_one_command_at_a_time(link):
    link.ask(forward(1), ExpectedAnswer("upload"))
    link.ask(SAVE, ExpectedAnswer("done"))
    assert sent(link) == [forward(1)]


def test_the_next_command_follows_the_answer(link):
    link.ask(forward(1), ExpectedAnswer("upload"))
    link.ask(SAVE, ExpectedAnswer("done"))
    link.answered()
    assert sent(link) == [forward(1), SAVE]


def test_what_is_asked_of_a_device_that_is_away_waits_for_it():
    link = DeviceLink("cam")
    link.ask(forward(1), ExpectedAnswer("upload"))
    link.ask(SAVE, ExpectedAnswer("done"))
    here(link).came_back()
    assert sent(link) == [forward(1)]


def test_what_was_not_answered_is_sent_again(link):
    link.ask(forward(1), ExpectedAnswer("upload"))
    assert sent(link) == [forward(1)]
    here(link).came_back()
    assert sent(link) == [forward(1)]
    here(link).came_back()
    link.answered()
    assert sent(link) == [forward(1)]
    here(link).came_back()
    assert sent(link) == [], "and what was answered is not"


def test_beginning_comes_before_all_that_was_asked(link):
    link.ask(forward(6), ExpectedAnswer("upload"))
    sent(link)
    here(link).ask_first(BEGIN, ExpectedAnswer("done"))
    link.answered()
    assert sent(link) == [BEGIN, forward(6)]


def test_news_for_a_device_that_is_away_are_kept_by_nobody():
    link = DeviceLink("cam")
    link.inform(backward(1))
    here(link).came_back()
    assert sent(link) == []


# --- the reply to an upload


def test_a_reply_that_was_lost_is_sent_again_with_its_bytes(link):
    link.reply = (backward(3, 1), [memoryview(b"gradient")])
    link.inform(*link.reply)
    assert sent(link) == [backward(3, 1), b"gradient"]
    here(link, round=3, turn=1, waiting=True).came_back()
    assert sent(link) == [backward(3, 1), b"gradient"]


def test_a_reply_that_arrived_is_not(link):
    link.reply = (backward(3, 1), [])
    sent(link)
    here(link, round=3, turn=1, waiting=False).came_back()
    assert sent(link) == []


def test_a_reply_goes_before_the_next_command(link):
    link.reply = (backward(3), [])
    link.ask(SAVE, ExpectedAnswer("done"))
    sent(link)
    here(link, round=3, waiting=True).came_back()
    assert sent(link) == [backward(3), SAVE]


def test_an_upload_whose_round_was_closed_is_answered_late(link):
    link.reply = (backward(2), [])
    sent(link)
    here(link, round=3, turn=1, waiting=True).came_back()
    assert sent(link) == [late(3, 1)]


def test_a_device_that_never_had_a_reply_is_answered_late_too(link):
    sent(link)
    here(link, round=1, waiting=True).came_back()
    assert sent(link) == [late(1, 0)]


def test_an_upload_that_was_lost_on_its_way_is_asked_for_again_and_is_not_late(link):
    link.ask(forward(3, 1), ExpectedAnswer("upload"))
    sent(link)
    here(link, round=3, turn=1, waiting=True).came_back()
    assert sent(link) == [forward(3, 1)]


def test_an_upload_that_is_here_and_will_have_its_reply_is_not_late(link):
    sent(link)
    here(link, round=3, turn=1, waiting=True).came_back((3, 1))
    assert sent(link) == []
    here(link, round=3, turn=0, waiting=True).came_back((3, 1))
    assert sent(link) == [late(3, 0)]


def test_an_upload_for_another_turn_than_is_asked_for_is_late(link):
    link.ask(forward(3, 1), ExpectedAnswer("upload"))
    sent(link)
    here(link, round=3, turn=0, waiting=True).came_back()
    assert sent(link) == [late(3, 0), forward(3, 1)]


def test_news_take_nothing_from_what_is_due(link):
    """The last command's answer is still expected when the device hears something in between."""
    link.ask(ASK, ExpectedAnswer("status"))
    link.inform(late(3, 0))
    session = link.session
    assert sent(link) == [ASK, late(3, 0)]
    assert session._due == ExpectedAnswer("status")
