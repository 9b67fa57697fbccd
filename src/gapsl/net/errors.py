"""What is wrong with something that arrived, in a form that the other side can be told."""

from __future__ import annotations

import grpc

from gapsl.errors import GapslError
from gapsl.net import wire_pb2 as wire


class WireError(GapslError):
    """A message or tensor is not what was agreed; `reason` is what a Refusal says."""

    def __init__(self, reason: wire.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def why_failed(error: grpc.RpcError) -> str:
    """Return why a call failed, without what grpc says before it."""
    said = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    return " ".join(said.rpartition("last error: ")[2].split()) or "no answer"
