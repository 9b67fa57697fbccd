"""What the two servers share: how they listen, who may speak, and how many streams a party may hold open."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc

from gapsl.common.errors import InputError, Unavailable
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import OPTIONS, PROTOCOL
from gapsl.network.protocol.errors import RefusalLog, WireError
from gapsl.network.protocol.framing import deserialize, serialize
from gapsl.network.tls.credentials import check_address, choose_security, server_credentials

SPARE = 16  # streams beyond the listed devices' that may be told why they are refused
MOST_SILENT = 2  # streams of one certificate that have not said what they are about, or do not hear a refusal
STRANGER = ""  # whoever has a certificate that is not accepted
LINGERING = 100  # streams of a connection that have ended, and are not cleared away yet
METADATA_BYTES = 8192  # of a stream's opening; what gRPC sends itself has a few hundred
CONNECTIONS = 4  # for each stream: files that the run needs must not run out
HANDSHAKE_SECONDS = 20  # whoever has not shown a certificate by then, where one is needed, is cut off
HELLO_SECONDS = 10.0  # a stream that has not said who it is by then is closed

Identify = Callable[[grpc.ServicerContext], str | None]  # the name in a peer's certificate; None: it has none
Handler = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[Any]]


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
    return server_credentials(folder, name), Peers(folder).caller


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


class OpenStreams:
    """The streams that each party holds open: so many and no more, to leave room for others.

    A newer one ends the oldest, and the one that it takes the place of: its link may have broken.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[Hashable, dict[Hashable, grpc.ServicerContext]] = {}  # by party, the oldest first
        self._lock = threading.Lock()  # streams open and close in gRPC's threads

    @contextmanager
    def of(self, party: Hashable, context: grpc.ServicerContext, place: Hashable = None) -> Iterator[None]:
        """Count a stream of a party; None is whoever has no certificate: they cannot be told apart."""
        if party is None:
            yield
            return
        key = id(context) if place is None else place
        with self._lock:
            mine = self._open.setdefault(party, {})
            ended = [mine.pop(key)] if key in mine else []
            while len(mine) >= self._most:
                ended.append(mine.pop(next(iter(mine))))
            mine[key] = context
        for old in ended:
            old.cancel()
        try:
            yield
        finally:
            with self._lock:
                if mine.get(key) is context:
                    del mine[key]
                if not mine and self._open.get(party) is mine:  # names that are made up take no room for ever
                    del self._open[party]


@contextmanager
def within(seconds: float, otherwise: Callable[[], object]) -> Iterator[None]:
    """Do something else if what is done meanwhile takes longer."""
    timer = threading.Timer(seconds, otherwise)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Door:
    """Lets streams in that say in time who they are; whoever is refused hears why, and is in the log."""

    def __init__(
        self, hears: Any, first: str, says: Any, identify: Identify, tell: Callable[[str], None]
    ) -> None:
        self._hears, self._first, self._says = hears, first, says  # a stream's messages, and how it begins
        self.identify, self._refusals, self.silent = identify, RefusalLog(tell), OpenStreams(MOST_SILENT)

    def served(
        self, stream: Iterator[bytes], context: grpc.ServicerContext, serve: Callable[[Any], Iterator[Any]]
    ) -> Iterator[Any]:
        """Yield what is said to a stream: what `serve` makes of its first message, or why it is refused."""
        party: str | None = STRANGER
        who = f"somebody at {unquote(context.peer()).rpartition(':')[0]}"
        try:
            party = self.identify(context)
            with self.silent.of(party, context), within(HELLO_SECONDS, context.cancel):
                opening = self._opening(stream)
            who = repr(opening.name[:100])
            yield from serve(opening)
        except (WireError, InputError, Unavailable) as error:
            self._refusals.refused(who, error)
            reason = error.reason if isinstance(error, WireError) else wire.STOPPED
            with self.silent.of(party, context), within(HELLO_SECONDS, context.cancel):
                yield self._says(refusal=wire.Refusal(reason=reason, message=str(error)))

    def _opening(self, stream: Iterator[bytes]) -> Any:
        try:
            message: Any = deserialize(self._hears, next(stream))
        except (StopIteration, grpc.RpcError):
            raise WireError(wire.MALFORMED, f"the stream ended before its {self._first}") from None
        if isinstance(message, memoryview) or message.WhichOneof("message") != self._first:
            raise WireError(wire.MALFORMED, f"a stream begins with {self._first}")
        return getattr(message, self._first)


class Serving:
    """A gRPC server that listens, with its health where that package is installed."""

    def __init__(
        self,
        service: str,
        method: str,
        handler: Handler,
        address: str,
        streams: int,
        credentials: grpc.ServerCredentials | None,
    ) -> None:
        most = streams + SPARE  # others are turned away at once, and try again
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=most), options=bounded(most), maximum_concurrent_rpcs=most
        )
        call: grpc.RpcMethodHandler[bytes, Any] = grpc.stream_stream_rpc_method_handler(
            handler, response_serializer=serialize
        )
        handlers = grpc.method_handlers_generic_handler(service, {method: call})
        self._server.add_generic_rpc_handlers((handlers,))
        self._health = watched(self._server, service)
        check_free(address)
        try:
            self.port = (
                self._server.add_insecure_port(address)
                if credentials is None
                else self._server.add_secure_port(address, credentials)
            )
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {address}: {error}; is another server there?") from None
        self._server.start()

    def leaving(self) -> None:
        """Tell those who watch that the server goes down."""
        if self._health is not None:
            self._health.enter_graceful_shutdown()

    def stop(self) -> None:
        """Stop listening, and give streams a moment to end."""
        self._server.stop(grace=2.0).wait()


def bounded(streams: int) -> tuple[tuple[str, int], ...]:
    """Return how a server of so many streams is set up: what a peer can make it hold has an end."""
    opened = streams + LINGERING
    return (
        *OPTIONS,
        ("grpc.max_concurrent_streams", opened),  # of one connection: a process may be many devices
        ("grpc.server.max_pending_requests", opened),  # which are not looked at yet
        ("grpc.server.max_pending_requests_hard_limit", opened),
        ("grpc.max_metadata_size", METADATA_BYTES // 2),  # from there on it depends on chance
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", CONNECTIONS * streams),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    )


def watched(server: grpc.Server, service: str) -> Any:
    """Add the gRPC health protocol to a server; None where its package is not installed."""
    try:
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    except ImportError:
        return None
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", service):
        servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    return servicer


def check_free(address: str) -> None:
    """Refuse a port that somebody has at one of a host's addresses: gRPC is content with another of them."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or port == "0" or (":" in host.strip("[]") and not host.startswith("[")):
        return
    with suppress(socket.gaierror):  # gRPC says what is wrong with a host
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        elsewhere = 0
        for family, kind, _, _, place in found:
            with socket.socket(family, kind) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    trial.bind(place)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise Unavailable(
                            f"cannot listen on {address}: another program is at {place[0]}"
                        ) from None
                    if error.errno == errno.EACCES:
                        raise InputError(
                            f"cannot listen on {address}: this user may not; choose a port above 1023"
                        ) from None
                    elsewhere += error.errno == errno.EADDRNOTAVAIL
        if found and elsewhere == len(found):
            raise Unavailable(
                f"cannot listen on {address}: this machine has no such address; is its network up?"
            )
