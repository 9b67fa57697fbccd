"""What a server listens with, and how it knows who calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.server.service import Identify
from gapsl.network.tls.security import check_address, choose_security

if TYPE_CHECKING:
    from gapsl.network.tls.peers import Peers


def server_security(
    address: str, certs: str | Path | None, insecure: bool, name: str
) -> tuple[grpc.ServerCredentials | None, Identify]:
    """Return what a server listens with, and how it knows who calls."""
    check_address(address)
    folder = choose_security(address, None if certs is None else Path(certs), insecure)
    if folder is None:
        return None, lambda context: None
    try:
        from gapsl.network.tls.peers import Peers
    except ImportError:
        raise InputError('a server with certificates needs: pip install "gapsl[tls]"') from None
    from gapsl.network.tls.credentials import server_credentials

    return server_credentials(folder, name), identify_by(Peers(folder))


def identify_by(peers: Peers) -> Identify:
    """Return how to know a device by its certificate."""
    from gapsl.network.tls.peers import Unidentified

    def identify(context: grpc.ServicerContext) -> str:
        try:
            shown: Any = context.auth_context()  # its values are lists, whatever its stubs say
            return peers.identify(shown)
        except Unidentified as error:
            raise WireError(wire.IDENTITY, str(error)) from None

    return identify
