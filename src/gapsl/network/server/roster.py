"""Who belongs to a run, and who of them is connected."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PROTOCOL
from gapsl.network.protocol.errors import WireError
from gapsl.network.server.session import Inbox, Session

MOST_JOINS, JOINS_SECONDS = 20, 10.0  # a device that joins more often is told to wait


class Roster:
    """The devices of a run by name; each may be connected once."""

    def __init__(self, names: Sequence[str], inbox: Inbox) -> None:
        self.names = tuple(names)
        self.inbox = inbox
        self._connected: dict[int, Session] = {}
        self._joins: dict[int, deque[float]] = {}  # when each device joined last
        self._lock = threading.Lock()  # streams open and close in gRPC's threads

    def admit(self, hello: wire.Hello, identify: Callable[[], str | None]) -> Session:
        """Return a session for a device, or refuse it; `identify` reads the certificate's name, if any."""
        check_protocol(hello.protocol, hello.version)
        device = listed(hello.name, self.names, identify())
        with self._lock:
            self._limit(device, hello.name)
            if device in self._connected:
                raise WireError(
                    wire.TWICE, f"{hello.name!r} is connected already; if its link broke, it is noticed soon"
                )
            session = self._connected[device] = Session(device, hello.name, self.inbox, identify)
        return session

    def _limit(self, device: int, name: str) -> None:
        now, joins = time.monotonic(), self._joins.setdefault(device, deque(maxlen=MOST_JOINS))
        if len(joins) == MOST_JOINS and now - joins[0] < JOINS_SECONDS:
            raise WireError(
                wire.TOO_OFTEN, f"{name!r} joins too often; it may try again in {JOINS_SECONDS:.0f} s"
            )
        joins.append(now)

    def leave(self, session: Session) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            if self._connected.get(session.device) is session:
                del self._connected[session.device]

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


def check_protocol(protocol: int, version: str) -> None:
    """Refuse whoever speaks another protocol."""
    if protocol != PROTOCOL:
        raise WireError(
            wire.VERSION,
            f"this server speaks protocol {PROTOCOL}, the device {protocol} "
            f"(gapsl {version[:20] or 'of an unknown version'}); install the same gapsl on both",
        )


def listed(name: str, names: Sequence[str], identity: str | None) -> int:
    """Return the number of a device, or refuse one that is not listed or not the one it says it is."""
    if identity is not None and name != identity:
        raise WireError(
            wire.IDENTITY, f"the certificate is that of {identity!r}, the device says it is {name[:100]!r}"
        )
    if name not in names:
        raise WireError(
            wire.NOT_LISTED, f"{name[:100]!r} is not a device of this run; list it with --names at the server"
        )
    return names.index(name)
