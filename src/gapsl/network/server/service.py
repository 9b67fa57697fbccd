"""The server's gRPC service: it admits the devices of a run and gives each stream to its session."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import grpc

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.server.session import Inbox, Outgoing, Session
from gapsl.network.serving import Door, Identify, check_protocol, listed

MOST_JOINS, JOINS_SECONDS = 20, 10.0  # a device that joins more often is told to wait


class Roster:
    """The devices of a run by name; each may be connected once."""

    def __init__(
        self,
        names: Sequence[str],
        inbox: Inbox,
        changed: Callable[[list[str]], None] = lambda names: None,
    ) -> None:
        self.names, self.inbox, self._changed = tuple(names), inbox, changed  # told who is connected
        self._connected: dict[int, Session] = {}
        self._joins: dict[int, deque[float]] = {}  # when each device joined last
        self._lock = threading.Lock()  # streams open and close in gRPC's threads

    def admit(self, hello: wire.Hello, identify: Callable[[], str | None]) -> Session:
        """Return a session for a device, or refuse it; `identify` reads the certificate's name, if any."""
        check_protocol(hello.protocol, hello.version)
        device = listed(hello.name, self.names, identify())
        with self._lock:
            now, joins = time.monotonic(), self._joins.setdefault(device, deque(maxlen=MOST_JOINS))
            if len(joins) == MOST_JOINS and now - joins[0] < JOINS_SECONDS:
                wait = f"it may try again in {JOINS_SECONDS:.0f} s"
                raise WireError(wire.TOO_OFTEN, f"{hello.name!r} joins too often; {wait}")
            joins.append(now)
            if device in self._connected:
                raise WireError(
                    wire.TWICE, f"{hello.name!r} is connected already; if its link broke, it is noticed soon"
                )
            session = self._connected[device] = Session(device, hello.name, self.inbox, identify)
            self._changed([self.names[one] for one in sorted(self._connected)])
        return session

    def leave(self, session: Session) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            if self._connected.get(session.device) is session:
                del self._connected[session.device]
                self._changed([self.names[one] for one in sorted(self._connected)])

    def goodbye(self, reason: str, *, finished: bool) -> None:
        """Tell everybody who is connected that the run is finished, or that the server stops."""
        for session in self.connected().values():
            if finished:
                session.finish(reason)
            else:
                session.close(wire.ToDevice(goodbye=wire.Goodbye(reason=reason)))

    def connected(self) -> dict[int, Session]:
        """Return the connected devices."""
        with self._lock:
            return dict(sorted(self._connected.items()))


class Service:
    """Serves the streams of a run's devices."""

    def __init__(
        self,
        roster: Roster,
        welcome: Callable[[int], wire.Welcome],
        identify: Identify,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._roster, self._welcome = roster, welcome
        self._door = Door(wire.FromDevice, "hello", wire.ToDevice, identify, tell)
        self.finished = ""  # the last word to whoever comes when the run is over

    def join(self, stream: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Outgoing]:
        """Handle one stream from hello to goodbye."""
        return self._door.served(stream, context, partial(self._joined, stream, context))

    def _joined(
        self, stream: Iterator[bytes], context: grpc.ServicerContext, hello: wire.Hello
    ) -> Iterator[Outgoing]:
        session = self._roster.admit(hello, partial(self._door.identify, context))
        session.cancel = context.cancel
        if self.finished:
            session.finish(self.finished)
        reader = threading.Thread(
            target=session.read, args=(stream,), name=f"read {session.name}", daemon=True
        )
        reader.start()
        context.add_callback(session.close)  # wakes the sender if the link breaks
        try:
            if not self.finished:
                yield wire.ToDevice(welcome=self._welcome(session.device))
            yield from session.outgoing()
        finally:
            self._roster.leave(session)
            session.ended()
