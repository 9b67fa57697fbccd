"""What lies between the server and each device, connected or not, and waiting for what devices say."""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from gapsl.common.errors import Stopped, Unavailable
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.settings import RoundPolicy
from gapsl.network.server.session import Answered, Event, ExpectedAnswer, Inbox, Session

FEW = 4  # names in a line of the log
REMIND = 10.0  # seconds between two lines that say who is waited for
SHARING = 20.0  # seconds that a stop waits for devices that are at the parameter server


class LinkState(Enum):
    """What a device does, as far as the server knows."""

    AWAY = auto()  # not connected
    IDLE = auto()  # connected, and has answered everything
    BEGINNING = auto()  # builds its client-side model, or restores it
    SHARING = auto()  # is at the parameter server
    BUSY = auto()  # carries out any other command


@dataclass(eq=False)
class PendingCommand:
    """A command whose answer is due; it stays so through broken links, unless it is dropped."""

    message: wire.ToDevice
    due: ExpectedAnswer
    payload: Sequence[memoryview] = ()
    needed: bool = False  # the run cannot go on without its answer, whatever its policy is
    answer: Answered | None = None
    dropped: bool = False

    @property
    def kind(self) -> str:
        """The command's name in ToDevice."""
        return str(self.message.WhichOneof("message"))

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.answer is not None or self.dropped


@dataclass
class DeviceLink:
    """Commands wait here while a device is away, and are sent again when it comes back."""

    name: str
    session: Session | None = None
    ready: wire.Ready | None = None  # what it said when it last joined
    pending: deque[PendingCommand] = field(default_factory=deque)  # the first is sent if there is a session
    reply: tuple[wire.ToDevice, Sequence[memoryview]] | None = None  # the last, in case it was lost
    turn: int = 0  # of the last upload
    asked: float = 0.0  # when it was asked for that one
    uploaded: float = math.inf  # when it was here
    has: set[tuple[int, int]] = field(default_factory=set)  # evaluation sets and batches that it was sent

    @property
    def state(self) -> LinkState:
        """What the device does."""
        if self.session is None:
            return LinkState.AWAY
        kind = self.pending[0].kind if self.pending else ""
        states = {"": LinkState.IDLE, "begin": LinkState.BEGINNING, "share": LinkState.SHARING}
        return states.get(kind, LinkState.BUSY)

    def ask(
        self,
        message: wire.ToDevice,
        due: ExpectedAnswer,
        payload: Sequence[memoryview] = (),
        *,
        needed: bool = False,
    ) -> PendingCommand:
        """Ask for something, after all that was asked before."""
        self.pending.append(PendingCommand(message, due, payload, needed))
        if len(self.pending) == 1:
            self.send()
        return self.pending[-1]

    def ask_first(self, message: wire.ToDevice, due: ExpectedAnswer) -> None:
        """Ask a device that has just come for something before all else."""
        self.pending.appendleft(PendingCommand(message, due))
        self.send()

    def send(self) -> None:
        """Send the first pending command, if the device is there."""
        if self.session is not None and self.pending:
            first = self.pending[0]
            self.session.command(first.message, first.due, first.payload)

    def answered(self, answer: Answered | None = None) -> None:
        """Take note of an answer, and send what comes next."""
        self.pending.popleft().answer = answer
        self.send()

    def drop(self, keep: Callable[[PendingCommand], bool] = lambda command: False) -> None:
        """Wait for no answers any more, but for those to keep."""
        for command in self.pending:
            command.dropped = not keep(command)
        self.pending = deque(command for command in self.pending if not command.dropped)

    def inform(self, message: wire.ToDevice, payload: Sequence[memoryview] = ()) -> None:
        """Send what needs no answer, if the device is there."""
        if self.session is not None:
            self.session.command(message, None, payload)

    def refuse(self, error: WireError) -> None:
        """End the device's stream, if it has one, and say why."""
        if self.session is not None:
            self.session.refuse(error)
            self.session = None

    def came_back(self, uploaded: tuple[int, ...] | None = None) -> None:
        """Send again what a device that kept its memory may have missed.

        `uploaded` is the upload that is here and will have its reply when its round closes.
        """
        assert self.ready is not None
        sent = (self.ready.round, self.ready.turn)
        first = self.pending[0].message if self.pending else wire.ToDevice()
        again = first.HasField("forward") and (first.forward.round, first.forward.turn) == sent
        if self.ready.waiting and sent != uploaded and not again:
            message, payload = self.reply or (wire.ToDevice(), ())
            if (message.backward.round, message.backward.turn) == sent:
                self.inform(message, payload)
            else:  # its round was closed without it
                self.inform(late(*sent))
        self.send()


def late(round: int, turn: int) -> wire.ToDevice:
    """Return the answer to an upload for a round that is closed."""
    return wire.ToDevice(backward=wire.Backward(round=round, turn=turn, late=True))


class EventQueue:
    """The events of all sessions, in the order in which they came."""

    def __init__(
        self,
        inbox: Inbox,
        links: Mapping[int, DeviceLink],
        policy: RoundPolicy,
        *,
        patience: float,
        stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._inbox, self._links, self._policy = inbox, links, policy
        self.patience, self._stop, self._tell = patience, stop, tell
        self._stop_delayed = math.inf  # since when a stop waits for devices that are at the parameter server

    def next(self, until: float | None, given_up: float, *, training: bool) -> Event | None:
        """Wait for whatever a session has to say; None: the time is up.

        A stop is delayed while a round can end; there is none to end if the run is not `training`.
        """
        reminded = time.monotonic()
        while True:
            now = time.monotonic()
            if self._stop():
                self._stop_delayed = min(self._stop_delayed, now) if self._sharing() else math.inf
                if not (training and self._enough()) or now >= self._stop_delayed + SHARING:
                    raise Stopped("asked to stop")
            if until is not None and now >= until and self._inbox.empty():
                return None
            if now >= given_up:
                raise Unavailable(
                    f"nothing from {self._awaited()} for {self.patience:.0f} s; nothing is lost: "
                    "start who is away, then the server again"
                )
            try:
                wait = min(0.5, given_up - now, *(() if until is None else (until - now,)))
                return self._inbox.get(timeout=max(0.001, wait))
            except queue.Empty:
                if now - reminded >= REMIND:
                    reminded = now
                    self._tell(f"waiting for {self._awaited()}")

    def _awaited(self) -> str:
        away = [link.name for link in self._links.values() if link.state is LinkState.AWAY]
        slow = [link.name for link in self._links.values() if link.session is not None and link.pending]
        where = " at the parameter server" if slow and not away and self._sharing() else ""
        return (listing(away or slow) or "the devices") + where

    def _sharing(self) -> bool:
        """Say whether a device that is there is at the parameter server."""
        return any(link.state is LinkState.SHARING for link in self._links.values())

    def _enough(self) -> bool:
        """Say whether enough are there for a round to end, so that a stop can wait for it."""
        there = sum(link.session is not None for link in self._links.values())
        return self._policy.of_round(len(self._links), None).closes(len(self._links), there, math.inf)


def listing(names: Sequence[str]) -> str:
    """Return names for a line of a log: all of a few, or how many there are."""
    if len(names) <= FEW:
        return ", ".join(names)
    return f"{', '.join(names[:FEW])} and {len(names) - FEW} more"
