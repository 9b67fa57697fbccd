"""What is wrong with something that arrived, in a form that the other side can be told."""

from __future__ import annotations

import re

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
