"""Who belongs to a run, and who of them is connected."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gapsl.net import wire_pb2 as wire
from gapsl.net.errors import WireError
from gapsl.net.session import Inbox, Session

PROTOCOL = 1


class Roster:
    """The devices of a run by name; each may be connected once."""

    def __init__(self, names: Sequence[str], inbox: Inbox) -> None:
        self.names = tuple(names)
        self._inbox = inbox
        self._connected: dict[int, Session] = {}
        self._lock = threading.Lock()  # streams open and close in gRPC's threads

    def admit(self, hello: wire.Hello, identity: str | None) -> Session:
        """Return a session for a device, or refuse it; `identity` is the name in its certificate, if any."""
        if hello.protocol != PROTOCOL:
            raise WireError(
                wire.VERSION,
                f"this server speaks protocol {PROTOCOL}, the device {hello.protocol} "
                f"(gapsl {hello.version[:20] or 'of an unknown version'}); install the same gapsl on both",
            )
        if identity is not None and hello.name != identity:
            raise WireError(
                wire.IDENTITY,
                f"the certificate is that of {identity!r}, the device says it is {hello.name!r}",
            )
        if hello.name not in self.names:
            raise WireError(
                wire.NOT_LISTED, f"{hello.name!r} is not a device of this run; it has {', '.join(self.names)}"
            )
        device = self.names.index(hello.name)
        with self._lock:
            if device in self._connected:
                raise WireError(
                    wire.TWICE, f"{hello.name!r} is connected already; if its link broke, it is noticed soon"
                )
            session = self._connected[device] = Session(device, hello.name, self._inbox)
        return session

    def leave(self, session: Session) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            if self._connected.get(session.device) is session:
                del self._connected[session.device]

    def connected(self) -> dict[int, Session]:
        """Return the connected devices."""
        with self._lock:
            return dict(sorted(self._connected.items()))
