"""The server's end of one device's stream: commands go out, answers come in, one at a time.

gRPC works on a session with two threads, one that sends and one that reads; the run is a third. What arrives
is checked against the one answer that is due, put together in memory that was reckoned with, and given to the
run as an event. A device that says anything else is refused, and nobody but it notices.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import grpc
import torch
from torch import Tensor

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import TensorSpec, deserialize, framed, received

GIVES_UP = "the device gives up"
LAST_WORD_SECONDS = 10.0  # for a device to take what was sent before its stream was ended
Outgoing = wire.ToDevice | memoryview
Answer = wire.Upload | wire.Scored | wire.Done | wire.Status | wire.Judged


@dataclass(frozen=True)
class ExpectedAnswer:
    """The answer that a device owes."""

    kind: str  # the name of it in FromDevice
    about: tuple[int, ...] = ()  # round and turn, or the number of a batch
    tensor: TensorSpec | None = None
    labels: range = range(0)  # what labels may be; empty: none are sent
    unlabelled: int = 0  # rows at the end whose label is -1


@dataclass(frozen=True)
class Joined:
    """A device is there, and has said what it can go on from."""

    session: Session
    ready: wire.Ready


@dataclass(frozen=True)
class Left:
    """A device's stream has ended."""

    session: Session
    reason: str


@dataclass(frozen=True)
class Answered:
    """A device has answered a command."""

    session: Session
    answer: Answer
    tensor: Tensor | None
    labels: Tensor | None
    at: float = field(default_factory=time.monotonic)  # when all of it was here


@dataclass(frozen=True)
class Heard:
    """A device knows that the run is finished."""

    session: Session


Event = Joined | Left | Answered | Heard
Inbox = queue.SimpleQueue[Event]


Sending = tuple[ExpectedAnswer | None, Iterable[Outgoing]]  # each with the answer that is due for it


class Session:
    """One connection of one device."""

    def __init__(
        self, device: int, name: str, inbox: Inbox, identify: Callable[[], str | None] = lambda: None
    ) -> None:
        self.device, self.name, self._identify = device, name, identify
        self._inbox = inbox
        self.cancel: Callable[[], object] = lambda: None  # ends the stream, whatever is on its way
        self._outgoing: queue.SimpleQueue[Sending | None] = queue.SimpleQueue()
        self._last_word: threading.Timer | None = None
        self._ended = False
        self._finished = False
        self._due: ExpectedAnswer | None = ExpectedAnswer("ready")
        self._lock = threading.Lock()
        self._labels: Tensor | None = None  # of the answer whose tensor is arriving

    def command(
        self, message: wire.ToDevice, due: ExpectedAnswer | None = None, payload: Sequence[memoryview] = ()
    ) -> None:
        """Send a command and the bytes of its tensor; what is due for it, if anything, comes as an event."""
        self._outgoing.put((due, framed(message, payload)))

    def close(self, last: wire.ToDevice | None = None) -> None:
        """End the stream, with a last word or without; if that is not taken in time, end it all the same."""
        if last is not None:
            self._outgoing.put((None, (last,)))
        self._outgoing.put(None)
        with self._lock:
            if self._ended or self._last_word is not None:
                return
            self._last_word = threading.Timer(LAST_WORD_SECONDS, lambda: self.cancel())
            self._last_word.daemon = True
            self._last_word.start()

    def finish(self, reason: str) -> None:
        """Say that the run is finished; of what the device still sends only that it has heard is wanted."""
        self._finished = True
        self._outgoing.put((None, (wire.ToDevice(goodbye=wire.Goodbye(reason=reason, finished=True)),)))

    def unwelcome(self) -> WireError | None:
        """Return why the device is to be refused, if its certificate has expired or was revoked since."""
        try:
            if self._identify() in (None, self.name):
                return None
            return WireError(wire.IDENTITY, f"the certificate is not that of {self.name!r}")
        except WireError as error:
            return error

    def refuse(self, error: WireError) -> None:
        """End the stream and say why."""
        self.close(wire.ToDevice(refusal=wire.Refusal(reason=error.reason, message=str(error))))

    def outgoing(self) -> Iterator[Outgoing]:
        """Yield what is to be sent until the session is closed.

        gRPC asks for the next when the device has room for it. So an answer is due only when its command is
        on its way: a device that answers without reading would have ever more put by for it.
        """
        while (sent := self._outgoing.get()) is not None:
            due, messages = sent
            if due is not None:  # else what was due before still is
                with self._lock:
                    self._due = due
            yield from messages

    def ended(self) -> None:
        """Take note that the stream has ended."""
        with self._lock:
            self._ended = True
            if self._last_word is not None:
                self._last_word.cancel()

    def read(self, stream: Iterator[bytes]) -> None:
        """Take what the device sends until its stream ends; what is not due ends it with a refusal."""
        try:
            for message, tensor in received(wire.FromDevice, self._until_finished(stream), self._announced):
                self._take(message, tensor)
            reason = "it closed its stream"
            self.close()
        except WireError as error:
            reason = str(error)
            self.refuse(error)
        except Exception as error:  # gRPC ends the iterator with whatever its link died of
            reason = "the link broke" if isinstance(error, grpc.RpcError) else f"the link broke ({error!r})"
            self.close()
        self._inbox.put(Left(self, reason))

    def _until_finished(self, stream: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what the device sends; when the run is finished only that it has heard of it is wanted."""
        for data in stream:
            if not self._finished:
                yield data
                continue
            message = deserialize(wire.FromDevice, data)
            if isinstance(message, wire.FromDevice) and message.WhichOneof("message") == "heard":
                self._inbox.put(Heard(self))
                self.close()

    def _announced(self, message: wire.FromDevice) -> tuple[wire.Tensor, TensorSpec] | None:
        """Refuse a message that is not the one due; return its tensor, and what was agreed about it."""
        kind = message.WhichOneof("message")
        self._labels = None
        if kind == "failed":
            reason = "".join(c if c.isprintable() else " " for c in message.failed.reason[:200])
            raise WireError(wire.REASON_UNKNOWN, f"{GIVES_UP}: {reason}")
        with self._lock:
            due, self._due = self._due, None
        if due is None or kind != due.kind:
            expected = "nothing" if due is None else due.kind
            raise WireError(wire.MALFORMED, f"{kind or 'an unknown message'} where {expected} is due")
        if kind == "judged":
            header = message.judged.tensor
            if message.judged.HasField("tensor") != (due.tensor is not None):
                raise WireError(wire.MALFORMED, "a tensor too much, or too few")
        elif kind in ("upload", "scored"):
            answer = message.upload if kind == "upload" else message.scored
            about = (answer.round, answer.turn) if isinstance(answer, wire.Upload) else (answer.batch,)
            if about != due.about:
                raise WireError(wire.LATE, f"an answer about {about} where {due.about} is due")
            self._labels, header = checked_labels(answer, due), answer.activations
        return None if due.tensor is None else (header, due.tensor)

    def _take(self, message: wire.FromDevice, tensor: Tensor | None) -> None:
        """Give the run what has arrived and was due."""
        kind = str(message.WhichOneof("message"))
        if kind == "ready":
            self._inbox.put(Joined(self, message.ready))
        else:
            self._inbox.put(Answered(self, getattr(message, kind), tensor, self._labels))


def checked_labels(answer: wire.Upload | wire.Scored, due: ExpectedAnswer) -> Tensor | None:
    """Return an answer's labels, one a row and all of them possible."""
    rows = answer.activations.shape[0] if answer.activations.shape else 0
    if len(answer.labels) != (rows if due.labels else 0):
        raise WireError(wire.MALFORMED, f"{len(answer.labels)} labels for {rows} rows")
    if not due.labels:
        return None
    labels = torch.tensor(answer.labels, dtype=torch.int64)
    known, none = labels.tensor_split([len(labels) - due.unlabelled])
    if len(known) and not (due.labels.start <= int(known.min()) and int(known.max()) < due.labels.stop):
        raise WireError(wire.MALFORMED, f"a label outside of {due.labels.start} to {due.labels.stop - 1}")
    if not bool((none == -1).all()):
        raise WireError(wire.MALFORMED, f"the last {due.unlabelled} rows are probes, and have no label")
    return labels
