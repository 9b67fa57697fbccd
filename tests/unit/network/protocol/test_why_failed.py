"""What a person is told of a call that failed: what to do, not what grpc has seen."""

from __future__ import annotations

import grpc
import pytest

from gapsl.network.protocol.errors import why_failed

TO = "failed to connect to all addresses; last error: "
REFUSED = f"{TO}UNKNOWN: ipv4:127.0.0.1:7443: Failed to connect to remote host: Connection refused"
SSL = "Tls handshake failed: SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:"


class Failed(grpc.RpcError, grpc.Call):
    """A call that ended with these details."""

    def __init__(self, details: str) -> None:
        self._details = details

    def details(self) -> str:
        return self._details


Failed.__abstractmethods__ = frozenset()  # what else a call has is not asked for


@pytest.mark.parametrize(
    ("details", "told"),
    [
        (REFUSED, "Connection refused"),
        (f"{TO}UNAVAILABLE: ipv4:127.0.0.1:7443: {SSL}WRONG_VERSION_NUMBER: bad", "it speaks plain text"),
        (f"{TO}UNAVAILABLE: ipv6:[::1]:7443: {SSL}CERTIFICATE_VERIFY_FAILED", "its certificate is not good"),
        ("Stream removed", "Stream removed"),
        ("", "no answer"),
    ],
)
def test_the_cause_is_said_without_what_grpc_says_before_it(details, told):
    assert why_failed(Failed(details)).startswith(told)


def test_a_server_that_closes_a_plain_connection_may_want_certificates():
    closed = Failed(f"{TO}UNAVAILABLE: ipv4:127.0.0.1:7443: Socket closed")
    assert "--certs" in why_failed(closed, plain=True)
    assert why_failed(closed) == "Socket closed"
