"""A device's end of the stream: it stays connected, through broken links, until the run is over."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from gapsl import __version__
from gapsl.common.errors import InputError, Unavailable
from gapsl.network.device.device_data import DeviceData
from gapsl.network.device.member import COMPUTING, Member, Outgoing
from gapsl.network.device.store import Store
from gapsl.network.parameter_server.client import ParameterClient
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PROTOCOL, TRAINING, Backoff, open_channel
from gapsl.network.protocol.errors import WireError, why_failed
from gapsl.network.protocol.framing import TensorSpec, received, serialize

BEAT_SECONDS = 60.0  # between two signs of life in a device's log
LAST_WORD_SECONDS = 2.0  # for the server to take a device's last word
# Refusals that another attempt may not meet.
PASSING = {wire.TWICE, wire.STOPPED, wire.LATE, wire.TOO_OFTEN, wire.EXPIRED}


@dataclass(frozen=True)
class Patience:
    """How long a device goes on trying, in seconds."""

    first: float = 0.2  # before the second attempt; doubled for each further one,
    longest: float = 15.0  # up to this
    whole: float = 3600.0  # without any connection, before it gives up


class Refused(InputError):
    """The server does not want this device."""


class Agent:
    """Keeps one device of a run connected."""

    def __init__(
        self,
        address: str,
        name: str,
        *,
        state: Path,
        load_data: Callable[[wire.Welcome], DeviceData],
        credentials: grpc.ChannelCredentials | None = None,
        credentials_for: Callable[[str], grpc.ChannelCredentials | None] | None = None,
        patience: Patience | None = None,
        fresh: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.address, self.name, self.state, self.tell = address, name, state, tell
        self._load_data, self._credentials = load_data, credentials
        # The parameter server's address is the server's word: whether it is good, and with what, is not.
        self._credentials_for = credentials_for or (lambda address: credentials)
        self._patience = patience or Patience()
        self._fresh = fresh
        self._member: Member | None = None
        self._batches, self._beat = 0, time.monotonic()  # since the last sign of life, and when that was
        self._connected = False  # whether the server has let it in
        self._away = False  # whether a connection was lost, or could not be made
        self._seen = time.monotonic()  # when there was last a connection

    def run(self) -> str:
        """Take part until the server says goodbye; returns why it did."""
        backoff = Backoff(self._patience.first, self._patience.longest)
        while True:
            try:
                return self._connection()
            except grpc.RpcError as error:
                why = why_failed(error, plain=self._credentials is None and self._member is None)
                lost = f"cannot reach {self.address} ({why})"
            except WireError as error:
                if error.reason not in PASSING:
                    raise InputError(f"{self.name} does not understand the server: {error}") from None
                why = lost = str(error)
            if time.monotonic() - self._seen < self._patience.first:
                backoff.attempts = 0
            if time.monotonic() - self._seen > self._patience.whole:
                raise Unavailable(f"no connection to {self.address}: {why}")
            self._away = True
            self.tell(f"{lost}; next attempt within {backoff.pause:.1f} s")
            backoff.wait()

    def _connection(self) -> str:
        outgoing: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        outgoing.put(
            wire.FromDevice(hello=wire.Hello(protocol=PROTOCOL, version=__version__, name=self.name))
        )
        with open_channel(self.address, self._credentials) as channel:
            join: grpc.StreamStreamMultiCallable[Outgoing, bytes] = channel.stream_stream(
                f"/{TRAINING}/Join", request_serializer=serialize
            )
            call = join(iter(outgoing.get, None))
            self._connected = False
            try:
                reason = self._follow(iter(call), outgoing, call.is_active)
                outgoing.put(wire.FromDevice(heard=wire.Heard()))
                hear_out(call)
                return reason
            except Refused:
                raise
            except (InputError, Unavailable, OSError) as error:
                outgoing.put(wire.FromDevice(failed=wire.Failed(reason=str(error)[:200])))
                hear_out(call)
                raise
            finally:
                if self._connected:
                    self._seen = time.monotonic()
                outgoing.put(None)
                call.cancel()

    def _follow(
        self,
        stream: Iterator[bytes],
        outgoing: queue.SimpleQueue[Outgoing | None],
        connected: Callable[[], bool],
    ) -> str:
        for command, tensor in received(wire.ToDevice, stream, self._announced):
            kind = command.WhichOneof("message")
            if kind == "refusal":
                if command.refusal.reason in PASSING:
                    raise WireError(command.refusal.reason, command.refusal.message)
                raise Refused(f"the server refuses {self.name}: {command.refusal.message}")
            if kind == "goodbye":
                if command.goodbye.finished:
                    return command.goodbye.reason
                raise WireError(wire.STOPPED, command.goodbye.reason)
            if kind == "welcome":
                if self._away:
                    self.tell(f"connected to {self.address}")
                self._connected, self._away = True, False
                outgoing.put(self._welcomed(command.welcome).ready())
                continue
            if self._member is None:
                raise WireError(wire.MALFORMED, f"{kind} before welcome")
            for answer in self._member.carry_out(command, tensor, connected):
                outgoing.put(answer)
            if kind == "forward":
                self._batches += 1
                self._show_life(self._member)
        raise WireError(wire.STOPPED, "the server closed the stream")

    def _show_life(self, member: Member) -> None:
        seconds = time.monotonic() - self._beat
        if seconds >= BEAT_SECONDS:
            pace = f"{self._batches} mini-batches in the last {seconds:.0f} s"
            self.tell(f"round {member.position[0]}/{member.total_rounds}, {pace}")
            self._batches, self._beat = 0, time.monotonic()

    def _welcomed(self, welcome: wire.Welcome) -> Member:
        # A server that was started again may name another parameter server: then all is built anew, as in
        # a process that was started again.
        if self._member is None or self._member.welcome != welcome:
            self.tell(f"welcome to run {welcome.run[:12]} as device {welcome.device} of {welcome.devices}")
            if not welcome.run.isalnum():  # it names a folder
                raise WireError(wire.MALFORMED, f"{welcome.run[:100]!r} is no name of a run")
            store = Store(self.state / welcome.run / self.name, f"{welcome.run}/{self.name}")
            store.check()
            client = None
            if welcome.parameter_server:
                address = welcome.parameter_server
                client = ParameterClient(self.name, address, self._credentials_for(address), self.tell)
            with COMPUTING:  # it makes a model, which draws from the generator that all share
                data = self._load_data(welcome)
            store.describe(data.model_info())
            fresh = self._fresh and self._member is None
            self._member = Member(data, store, welcome, client, fresh=fresh)
        return self._member

    def _announced(self, command: wire.ToDevice) -> tuple[wire.Tensor, TensorSpec] | None:
        return None if self._member is None else self._member.announced(command)


def hear_out(call: Iterable[bytes]) -> None:
    """Wait a moment for the server to close a stream, so that the last word to it is not lost."""

    def hear() -> None:
        with suppress(grpc.RpcError):
            deque(call, maxlen=0)

    closed = threading.Thread(target=hear, daemon=True)
    closed.start()
    closed.join(LAST_WORD_SECONDS)
