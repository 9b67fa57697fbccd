"""Floods of HTTP/2 frames, connections and headers: what a peer can make a server hold has an end."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest
from network import answers, channel_to, hello
from processes import wait_until

from gapsl.network import serving as serving_module
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import TRAINING
from gapsl.network.server.service import Roster, Service
from gapsl.network.server.session import Inbox
from gapsl.network.serving import CONNECTIONS, LINGERING, METADATA_BYTES, SPARE, Serving

STREAMS = 3 + SPARE
HEADERS, RESET, SETTINGS, PING = 1, 3, 4, 6
CALM_DOWN = struct.pack(">I", 0xB)  # why a stream is refused that is one too many
OPENING = {
    ":method": "POST", ":scheme": "http", ":path": f"/{TRAINING}/Join", ":authority": "here",
    "content-type": "application/grpc", "te": "trailers",
}  # fmt: skip


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server of three devices."""
    monkeypatch.setattr(serving_module, "HELLO_SECONDS", 0.5)
    roster = Roster(tuple(f"device-{number}" for number in range(3)), Inbox())
    service = Service(roster, lambda device: wire.Welcome(device=device), lambda context: None)
    serving = Serving(TRAINING, "Join", service.join, "localhost:0", 3, None)
    yield serving.port
    serving.stop()


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    """Return a frame as RFC 9113 has it."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def opening(stream: int) -> bytes:
    """Return the frame that opens a stream, its headers spelt out."""

    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    block = b"".join(b"\0" + text(name) + text(value) for name, value in OPENING.items())
    return frame(HEADERS, stream, block, flags=4)


class Raw:
    """A connection that says whatever it is told to, and hears everything."""

    def __init__(self, port: int) -> None:
        self.heard, self.closed = b"", False
        self.socket = socket.create_connection(("localhost", port))
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))
        threading.Thread(target=self._hear, daemon=True).start()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True

    def _hear(self) -> None:
        try:
            while data := self.socket.recv(1 << 16):
                self.heard += data
        except OSError:
            pass
        self.closed = True


def is_served(port: int) -> bool:
    """Say whether a device is let in."""
    try:
        with channel_to(port) as channel:
            return bool(answers(channel, [hello("device-1")])[0].HasField("welcome"))
    except grpc.RpcError:  # silent streams have their time
        return False


def resident_megabytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 >> 20


def test_a_connection_is_told_how_many_streams_and_how_long_headers_it_may_have(port: int) -> None:
    raw = Raw(port)
    for setting, limit in ((3, STREAMS + LINGERING), (6, METADATA_BYTES)):
        wait_until(lambda one=struct.pack(">HI", setting, limit): one in raw.heard, "the server's settings")


@pytest.mark.parametrize("reset", [True, False])
def test_streams_opened_by_the_thousand_are_refused_and_take_no_memory(port: int, reset: bool) -> None:
    assert is_served(port)
    raw, before = Raw(port), resident_megabytes()
    for first in range(1, 40_001, 200):
        each = (
            opening(n) + (frame(RESET, n, b"\0\0\0\x08") if reset else b"")
            for n in range(first, first + 200, 2)
        )
        raw.send(b"".join(each))
    wait_until(lambda: CALM_DOWN in raw.heard, "a refusal")
    assert resident_megabytes() - before < 40, "64 without a limit, and ever more"
    raw.socket.close()
    wait_until(lambda: is_served(port), "room for devices")


def test_pings_without_end_end_the_connection(port: int) -> None:
    raw = Raw(port)
    for _ in range(100):
        raw.send(frame(PING, payload=b"12345678"))
    wait_until(lambda: raw.closed, "its end")
    assert is_served(port)


def test_headers_that_are_too_long_are_not_kept(port: int) -> None:
    long = [(f"x-{number}", "a" * 1000) for number in range(12)]
    with channel_to(port) as channel:
        call = channel.stream_stream(f"/{TRAINING}/Join")(iter([]), metadata=long, timeout=30)
        with pytest.raises(grpc.RpcError, match=f"exceeds hard limit .* {METADATA_BYTES}"):
            list(call)
    assert is_served(port)


def test_connections_have_an_end_so_that_files_do_not_run_out(port: int) -> None:
    with ExitStack() as stack:
        many = [Raw(port) for _ in range(CONNECTIONS * STREAMS + 20)]
        for raw in many:
            stack.enter_context(raw.socket)
        wait_until(lambda: sum(raw.closed for raw in many) >= 20, "the end of those that are too many")
    wait_until(lambda: is_served(port), "room for devices")
