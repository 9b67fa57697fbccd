"""Streams that say nothing: a party has a few of them, and the newest count."""

import pytest

from gapsl.network.parameter_server.service import ParameterService
from gapsl.network.parameter_server.store import Transfers
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import serialize
from gapsl.network.server.service import Roster, Service
from gapsl.network.server.session import Inbox
from gapsl.network.serving import MOST_SILENT, OpenStreams


class Stream:
    """As much of a stream as is asked for: whether it was ended."""

    ended = False

    def peer(self):
        return "ipv4:127.0.0.1:1234"

    def cancel(self):
        self.ended = True


def test_a_party_has_a_few_and_a_newer_one_ends_the_oldest():
    silent, streams = OpenStreams(MOST_SILENT), [Stream() for _ in range(MOST_SILENT + 2)]
    waiting = [silent.of("cam", stream) for stream in streams]
    for each in waiting:
        each.__enter__()
    assert [stream.ended for stream in streams] == [True, True] + [False] * MOST_SILENT
    for each in waiting:
        each.__exit__(None, None, None)
    with silent.of("cam", another := Stream()):
        assert not another.ended, "those that have spoken, or ended, do not count"


def test_it_is_in_nobody_elses_way():
    silent, other = OpenStreams(MOST_SILENT), Stream()
    with silent.of("mic", other):
        waiting = [silent.of("cam", Stream()) for _ in range(2 * MOST_SILENT)]
        for each in waiting:
            each.__enter__()
    assert not other.ended


def test_those_without_a_certificate_cannot_be_told_apart_and_are_left():
    silent, streams = OpenStreams(MOST_SILENT), [Stream() for _ in range(3 * MOST_SILENT)]
    waiting = [silent.of(None, stream) for stream in streams]
    for each in waiting:
        each.__enter__()
    assert not any(stream.ended for stream in streams)


class Context(Stream):
    """A stream of a device with a certificate."""

    def add_callback(self, callback):
        return True


def test_a_server_counts_a_stream_until_its_first_word_and_can_end_it_after():
    inbox = Inbox()
    roster = Roster(("cam",), inbox)
    service = Service(roster, lambda device: wire.Welcome(), lambda context: "cam")
    streams = [Context() for _ in range(MOST_SILENT + 1)]
    counted, waiting = [], []

    def words():
        for another in streams[1:]:  # which open while the first one says nothing
            waiting.append(service._door.silent.of("cam", another))
            waiting[-1].__enter__()
        counted.append(streams[0].ended)
        yield serialize(wire.FromDevice(hello=wire.Hello(protocol=1, name="cam")))

    sending = service.join(words(), streams[0])
    assert next(sending).HasField("welcome")
    assert counted == [True], "while it was waited for, newer ones took its place"
    session = roster.connected()[0]
    streams[0].ended = False
    session.cancel()
    assert streams[0].ended, "a last word that is not taken ends this stream"
    sending.close()
    assert not roster.connected()


def revoked(context):
    raise WireError(wire.IDENTITY, "its certificate was revoked")


def server(tmp_path, identify):
    return Service(Roster(("cam",), Inbox()), lambda device: wire.Welcome(), identify).join


def parameter_server(tmp_path, identify):
    return ParameterService(("cam",), Transfers(tmp_path), 1 << 20, identify).share


@pytest.mark.parametrize("identify", [lambda context: "cam", revoked], ids=["listed", "revoked"])
@pytest.mark.parametrize("serving", [server, parameter_server])
def test_those_who_do_not_take_a_refusal_count_as_silent_too(tmp_path, serving, identify):
    serve = serving(tmp_path, identify)
    streams = [Context() for _ in range(MOST_SILENT + 1)]
    open_ones = [serve(iter([b""]), stream) for stream in streams]
    for each in open_ones:
        assert next(each).HasField("refusal")
    assert [stream.ended for stream in streams] == [True] + [False] * MOST_SILENT
    for each in open_ones:
        each.close()


@pytest.mark.parametrize("serving", [server, parameter_server])
def test_a_stream_counts_while_its_first_word_is_waited_for(tmp_path, serving):
    serve = serving(tmp_path, lambda context: "cam")
    streams = [Context() for _ in range(MOST_SILENT + 1)]
    seen = []

    def words(number):
        if number < MOST_SILENT:  # the next one opens while this one says nothing
            next(serve(words(number + 1), streams[number + 1]))
        else:
            seen.extend(stream.ended for stream in streams)
        yield b""

    next(serve(words(0), streams[0]))
    assert seen == [True] + [False] * MOST_SILENT
