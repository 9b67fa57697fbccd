"""Refusals in a server's log: once in a minute for each peer and reason, and how many were held back."""

import pytest

from gapsl.network.parameter_server.service import ParameterService
from gapsl.network.parameter_server.store import Transfers
from gapsl.network.protocol import errors
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import MOST_LINES, RefusalLog, WireError
from gapsl.network.protocol.framing import serialize
from gapsl.network.server.service import Roster, Service
from gapsl.network.server.session import Inbox

REVOKED = WireError(wire.IDENTITY, "its certificate was revoked")
TWICE = WireError(wire.TWICE, "it is connected already")


class Clock:
    """The time, as the log has it."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(errors, "time", found := Clock())
    return found


def test_a_peer_has_a_line_for_each_reason(clock):
    log = RefusalLog((said := []).append)
    for _ in range(3):
        log.refused("cam", REVOKED)
        log.refused("mic", REVOKED)
        log.refused("cam", TWICE)
    assert said == [
        "cam is refused: its certificate was revoked",
        "mic is refused: its certificate was revoked",
        "cam is refused: it is connected already",
    ]


def test_a_minute_later_it_is_said_how_many_were_held_back(clock):
    log = RefusalLog((said := []).append)
    for _ in range(5):
        log.refused("cam", REVOKED)
    clock.now += 59.0
    log.refused("cam", REVOKED)
    clock.now += 1.0
    log.refused("mic", REVOKED)
    log.refused("cam", REVOKED)
    assert said == [
        "cam is refused: its certificate was revoked",
        "cam was refused 5 more times: its certificate was revoked",
        "mic is refused: its certificate was revoked",
        "cam is refused: its certificate was revoked",
    ]


def test_names_that_are_invented_have_no_line_each(clock):
    log = RefusalLog((said := []).append)
    for number in range(10 * MOST_LINES):
        log.refused(f"cam-{number}", REVOKED)
    assert len(said) == MOST_LINES + 1 and said[-1].startswith("somebody else is refused: more names")
    clock.now += 60.0
    log.refused("cam", REVOKED)
    assert said[-2].startswith(f"somebody else was refused {9 * MOST_LINES - 1} more times")


def test_a_name_makes_no_lines_of_its_own(clock):
    log = RefusalLog((said := []).append)
    log.refused("cam", WireError(wire.VERSION, "gapsl 1\nround 5: all is well"))
    assert said == ["cam is refused: gapsl 1 round 5: all is well"]


class Context:
    """As much of a stream as is asked for."""

    def cancel(self):
        pass

    def peer(self):
        return "ipv6:%5B::1%5D:1234"


def server(tmp_path, identify, tell):
    return Service(Roster(("cam",), Inbox()), lambda device: wire.Welcome(), identify, tell).join


def parameter_server(tmp_path, identify, tell):
    return ParameterService(("cam",), Transfers(tmp_path), 1 << 20, identify, tell).share


def hello(name):
    return wire.FromDevice(hello=wire.Hello(protocol=1, name=name))


def announce(name):
    return wire.FromParameterClient(announce=wire.Announce(protocol=1, name=name))


@pytest.mark.parametrize(("serving", "first"), [(server, hello), (parameter_server, announce)])
def test_both_servers_tell_of_whoever_is_refused_once(tmp_path, serving, first):
    serve = serving(tmp_path, lambda context: "mic", (said := []).append)
    for _ in range(4):
        list(serve(iter([serialize(first("cam"))]), Context()))
    assert said == ["'cam' is refused: the certificate is that of 'mic', the device says it is 'cam'"]


@pytest.mark.parametrize("serving", [server, parameter_server])
def test_whoever_is_not_known_is_told_by_where_it_calls_from(tmp_path, serving):
    def identify(context):
        raise REVOKED

    serve = serving(tmp_path, identify, (said := []).append)
    for _ in range(4):
        list(serve(iter([]), Context()))
    assert said == ["somebody at ipv6:[::1] is refused: its certificate was revoked"]
