"""What the commands of a run over the network share: certificates, log lines, settings."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import grpc
import typer

from gapsl.common.errors import InputError
from gapsl.network.protocol.errors import WireError
from gapsl.network.server.service import Identify
from gapsl.network.tls.security import check_address, choose_security

if TYPE_CHECKING:
    from gapsl.network.tls.peers import Peers

Certs = Annotated[Path | None, typer.Option(help="The folder with the certificates; default: certs.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text, also beyond this machine: anybody may listen in.")
]
LogFormat = Annotated[str, typer.Option("--log", help="text, or json: one object a line.")]
Names = Annotated[
    str | None, typer.Option(help="The devices, separated by commas; default: device-0, device-1, ...")
]

DataDir = Annotated[
    str | None, typer.Option(help="Where data files are, and are downloaded to. Also: $GAPSL_DATA.")
]

log = logging.getLogger("gapsl")


class JsonLines(logging.Formatter):
    """A line of JSON for each message, for whoever collects them."""

    for_machines = True

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, what is said, and the numbers in it under names of their own."""
        return json.dumps(
            {
                "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
                "level": record.levelname.lower(),
                "message": record.getMessage(),
                **getattr(record, "fields", {}),
            }
        )


def start_log(kind: str) -> None:
    """Write log lines to standard error, as text or JSON."""
    if kind not in ("text", "json"):
        raise InputError(f"unknown --log {kind!r}; choose text or json")
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonLines() if kind == "json" else text)
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def server_security(
    address: str, certs: Path | None, insecure: bool, name: str
) -> tuple[grpc.ServerCredentials | None, Identify]:
    """Return what a server listens with, and how it knows who calls."""
    check_address(address)
    folder = choose_security(address, certs, insecure)
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
    from gapsl.network.protocol import wire_pb2 as wire
    from gapsl.network.tls.peers import Unidentified

    def identify(context: grpc.ServicerContext) -> str:
        try:
            shown: Any = context.auth_context()  # its values are lists, whatever its stubs say
            return peers.identify(shown)
        except Unidentified as error:
            raise WireError(wire.IDENTITY, str(error)) from None

    return identify


def split_names(names: str | None) -> tuple[str, ...]:
    """Return the names in a list separated by commas."""
    return tuple(name.strip() for name in names.split(",")) if names else ()


def given(**options: Any) -> Mapping[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
