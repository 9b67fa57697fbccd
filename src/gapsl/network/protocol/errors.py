"""What is wrong with something that arrived, in a form that the other side can be told."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

import grpc

from gapsl.common.errors import GapslError
from gapsl.network.protocol import wire_pb2 as wire


class WireError(GapslError):
    """A message or tensor is not what was agreed; `reason` is what a Refusal says."""

    def __init__(self, reason: wire.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# What grpc says of a handshake that failed, and what it means.
MEANINGS = {
    "WRONG_VERSION_NUMBER": "it speaks plain text: start it with --certs, or leave out --certs here",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not good here: of another authority or host, expired, "
    "or this machine's clock is wrong",
}
CLOSED = "Socket closed"
QUIET_SECONDS = 60.0  # between two lines about the same refusal
MOST_LINES = 100  # about refusals in that time
OTHERS = ("somebody else", "more names than the log has room for")
# Where the attempt went, and how far it came, before what came of it.
BEFORE = re.compile(r"^(?:UNKNOWN|UNAVAILABLE): \S+: (?:Failed to connect to remote host: )?")


def why_failed(error: grpc.RpcError, *, plain: bool = False) -> str:
    """Return why a call failed, in words for whoever runs a device; `plain`: it went out without TLS."""
    said = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    said = BEFORE.sub("", " ".join(said.rpartition("last error: ")[2].split()))
    for sign, meaning in MEANINGS.items():
        if sign in said:
            return meaning
    if plain and said == CLOSED:
        return "it closed the connection; if it has certificates, give yours with --certs"
    return said or "no answer"


class RefusalLog:
    """Tells of refusals: once in a minute for each peer and reason, and how many were held back.

    Whoever is refused may come again at once, and for ever; a log must not grow by that.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._since: dict[tuple[str, str], float] = {}  # when each line was told
        self._held: dict[tuple[str, str], int] = {}  # how often it was not, since then
        self._lock = threading.Lock()  # streams are refused in gRPC's threads

    def refused(self, who: str, error: Exception) -> None:
        """Tell that somebody is refused, and why, unless that was told in the last minute."""
        why = "".join(c if c.isprintable() else " " for c in str(error))
        with self._lock:
            now = time.monotonic()
            for line in [line for line, told in self._since.items() if now - told >= QUIET_SECONDS]:
                del self._since[line]
                if held := self._held.pop(line, 0):
                    self._tell(f"{line[0]} was refused {held} more times: {line[1]}")
            line = (who, why)
            if line not in self._since and len(self._since) >= MOST_LINES:
                line = OTHERS  # whoever invents names has no line for each of them
            if line in self._since:
                self._held[line] = self._held.get(line, 0) + 1
            else:
                self._since[line] = now
                self._tell(f"{line[0]} is refused: {line[1]}")
