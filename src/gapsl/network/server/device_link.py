"""What lies between the server and one device, whether it is connected or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server.session import Due, Session


@dataclass(frozen=True)
class Owed:
    """A command without its answer."""

    message: wire.ToDevice
    due: Due
    payload: Sequence[memoryview] = ()

    @property
    def kind(self) -> str:
        """The command's name."""
        return str(self.message.WhichOneof("message"))


@dataclass
class Line:
    """Commands wait here while a device is away, and are sent again when it comes back."""

    name: str
    session: Session | None = None
    ready: wire.Ready | None = None  # what it said when it last joined
    owed: deque[Owed] = field(default_factory=deque)  # the first is on its way if there is a session
    reply: tuple[wire.ToDevice, Sequence[memoryview]] | None = None  # the last, in case it was lost
    turn: int = 0  # of the last upload
    has: set[tuple[int, int]] = field(default_factory=set)  # evaluation sets and batches that it was sent

    @property
    def free(self) -> bool:
        """Whether the device is there and has answered everything."""
        return self.session is not None and not self.owed

    def ask(self, message: wire.ToDevice, due: Due, payload: Sequence[memoryview] = ()) -> None:
        """Ask for something, after all that was asked before."""
        self.owed.append(Owed(message, due, payload))
        if len(self.owed) == 1:
            self.send()

    def ask_first(self, message: wire.ToDevice, due: Due) -> None:
        """Ask a device that has just come for something before all else."""
        self.owed.appendleft(Owed(message, due))
        self.send()

    def send(self) -> None:
        """Send the first of what is owed, if the device is there."""
        if self.session is not None and self.owed:
            self.session.command(self.owed[0].message, self.owed[0].due, self.owed[0].payload)

    def answered(self) -> Owed:
        """Take note of an answer, and send what comes next."""
        done = self.owed.popleft()
        self.send()
        return done

    def inform(self, message: wire.ToDevice, payload: Sequence[memoryview] = ()) -> None:
        """Send what needs no answer, if the device is there."""
        if self.session is not None:
            self.session.command(message, None, payload)

    def came_back(self, pending: tuple[int, ...] | None = None) -> None:
        """Send again what a device that kept its memory may have missed.

        `pending` is the upload that is here and will have its reply when its round closes.
        """
        assert self.ready is not None
        sent = (self.ready.round, self.ready.turn)
        if self.ready.waiting and sent != pending and not self._asks_again(sent):
            message, payload = self.reply or (wire.ToDevice(), ())
            if (message.backward.round, message.backward.turn) == sent:
                self.inform(message, payload)
            else:  # its round was closed without it
                self.inform(late(*sent))
        self.send()

    def _asks_again(self, sent: tuple[int, int]) -> bool:
        forward = self.owed[0].message.forward if self.owed and self.owed[0].kind == "forward" else None
        return forward is not None and (forward.round, forward.turn) == sent


def late(round: int, turn: int) -> wire.ToDevice:
    """Return the answer to an upload for a round that is closed."""
    return wire.ToDevice(backward=wire.Backward(round=round, turn=turn, late=True))
