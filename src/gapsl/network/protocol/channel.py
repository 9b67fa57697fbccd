"""How a link to a server is opened, kept alive, and tried again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import grpc

from gapsl.network.protocol.framing import LARGEST_MESSAGE

PROTOCOL = 1
# The services of wire.proto.
TRAINING, PARAMETERS, INFERENCE = "gapsl.v1.Training", "gapsl.v1.Parameters", "gapsl.v1.Inference"
# A dead link is noticed after two of these; devices may ask as often.
KEEPALIVE_SECONDS = 10
OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_SECONDS * 1000),  # else a minute, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
)


def open_channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    """Return a link to a server, with its certificate or in plain text."""
    if credentials is None:
        return grpc.insecure_channel(address, options=OPTIONS)
    return grpc.secure_channel(address, credentials, options=OPTIONS)


@dataclass
class Backoff:
    """Pauses between attempts, each twice as long as the one before."""

    first: float  # seconds before the second attempt
    longest: float
    attempts: int = 0

    @property
    def pause(self) -> float:
        """How long the next pause is at most."""
        return min(self.longest, self.first * 2.0 ** min(self.attempts, 16))

    def wait(self) -> None:
        """Wait before the next attempt, by chance a little less: a fleet must not come back all at once."""
        pause, self.attempts = self.pause, self.attempts + 1
        time.sleep(pause * random.uniform(0.5, 1.0))
