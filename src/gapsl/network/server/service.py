"""The server's gRPC service: it admits devices and gives each stream to its session."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import grpc

from gapsl.common.errors import InputError, Unavailable
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import OPTIONS, TRAINING
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.serialization import deserialize, serialize
from gapsl.network.server.roster import Roster
from gapsl.network.server.session import Outgoing

SPARE = 16  # streams beyond the listed devices' that may be told why they are refused
MOST_SILENT = 2  # streams of one certificate that have not said what they are about, or do not hear a refusal
STRANGER = ""  # whoever has a certificate that is not accepted
HELLO_SECONDS = 10.0  # a stream that has not said who it is by then is closed

Identify = Callable[[grpc.ServicerContext], str | None]  # the name in a peer's certificate; None: it has none


class Silent:
    """Streams that said nothing yet, or are refused: a few of each certificate, to leave room for others.

    Where nobody has a certificate, they cannot be told apart.
    """

    def __init__(self) -> None:
        self._open: dict[str, list[grpc.ServicerContext]] = {}  # by name in the certificate, the oldest first
        self._lock = threading.Lock()  # streams open and close in gRPC's threads

    @contextmanager
    def of(self, identity: str | None, context: grpc.ServicerContext) -> Iterator[None]:
        """Wait for a stream to say or hear something, and for no more than a few of the same party."""
        if identity is None:
            yield
            return
        with self._lock:
            mine = self._open.setdefault(identity, [])
            ended = mine.pop(0) if len(mine) == MOST_SILENT else None
            mine.append(context)
        if ended is not None:
            ended.cancel()
        try:
            yield
        finally:
            with self._lock:
                if context in mine:
                    mine.remove(context)


class Service:
    """Serves the streams of a run's devices."""

    def __init__(self, roster: Roster, welcome: Callable[[int], wire.Welcome], identify: Identify) -> None:
        self._roster, self._welcome, self._identify = roster, welcome, identify
        self._silent = Silent()
        self.finished = ""  # the last word to whoever comes when the run is over

    def join(self, stream: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Outgoing]:
        """Handle one stream from hello to goodbye."""
        party: str | None = STRANGER
        try:
            party = self._identify(context)
            with self._silent.of(party, context):
                hello = first(stream, context)
            session = self._roster.admit(hello, partial(self._identify, context))
            session.cancel = context.cancel
        except WireError as error:
            with self._silent.of(party, context), within(HELLO_SECONDS, context.cancel):
                yield wire.ToDevice(refusal=wire.Refusal(reason=error.reason, message=str(error)))
            return
        if self.finished:
            session.finish(self.finished)
        reader = threading.Thread(
            target=session.read, args=(stream,), name=f"read {session.name}", daemon=True
        )
        reader.start()
        context.add_callback(session.close)  # wakes the sender if the link breaks
        try:
            if not self.finished:
                yield wire.ToDevice(welcome=self._welcome(session.device))
            yield from session.outgoing()
        finally:
            self._roster.leave(session)
            session.ended()


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


def first(stream: Iterator[bytes], context: grpc.ServicerContext) -> wire.Hello:
    """Return the hello that every stream begins with; one that does not come in time is not waited for."""
    try:
        with within(HELLO_SECONDS, context.cancel):
            message = deserialize(wire.FromDevice, next(stream))
    except (StopIteration, grpc.RpcError):
        raise WireError(wire.MALFORMED, "the stream ended before it said who it is") from None
    if isinstance(message, memoryview) or message.WhichOneof("message") != "hello":
        raise WireError(wire.MALFORMED, "a stream begins with hello")
    return message.hello


def check_free(address: str) -> None:
    """Refuse a port that somebody has at one of a host's addresses: gRPC is content with another of them."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or port == "0" or (":" in host.strip("[]") and not host.startswith("[")):
        return
    with suppress(socket.gaierror):  # gRPC says what is wrong with a host
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        for family, kind, _, _, place in found:
            with socket.socket(family, kind) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    trial.bind(place)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise InputError(
                            f"cannot listen on {address}: another program is at {place[0]}"
                        ) from None


def start_service(
    service: Service, address: str, devices: int, credentials: grpc.ServerCredentials | None
) -> Serving:
    """Start the service on an address."""
    join: grpc.RpcMethodHandler[bytes, Outgoing] = grpc.stream_stream_rpc_method_handler(
        service.join, response_serializer=serialize
    )
    handlers = grpc.method_handlers_generic_handler(TRAINING, {"Join": join})
    return Serving(TRAINING, handlers, address, devices, credentials)


class Serving:
    """A gRPC server that listens, with its health."""

    def __init__(
        self,
        service: str,
        handlers: grpc.GenericRpcHandler,
        address: str,
        devices: int,
        credentials: grpc.ServerCredentials | None,
    ) -> None:
        most = devices + SPARE  # others are turned away at once, and try again
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=most), options=OPTIONS, maximum_concurrent_rpcs=most
        )
        self._server.add_generic_rpc_handlers((handlers,))
        self._health = Health(self._server, [service])
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
        self._health.stopping()

    def stop(self) -> None:
        """Stop listening, and give streams a moment to end."""
        self._server.stop(grace=2.0).wait()


class Health:
    """The gRPC health protocol, for whoever watches a server; nothing where the package is not installed."""

    def __init__(self, server: grpc.Server, services: Sequence[str]) -> None:
        self._services = ("", *services)
        self._servicer: Any = None
        try:
            from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        except ImportError:
            return
        self._statuses = health_pb2.HealthCheckResponse
        self._servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        for service in self._services:
            self._servicer.set(service, self._statuses.SERVING)

    def stopping(self) -> None:
        """Tell those who watch that the server goes down."""
        if self._servicer is not None:
            self._servicer.enter_graceful_shutdown()
