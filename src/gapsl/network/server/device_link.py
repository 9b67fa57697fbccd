"""What lies between the server and one device, whether it is connected or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server.session import Answered, ExpectedAnswer, Session


class LinkState(Enum):
    """What a device does, as far as the server knows."""

    AWAY = auto()  # not connected
    IDLE = auto()  # connected, and has answered everything
    BEGINNING = auto()  # builds its half, or restores it
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

    def answered(self, answer: Answered | None = None) -> PendingCommand:
        """Take note of an answer, and send what comes next."""
        done = self.pending.popleft()
        done.answer = answer
        self.send()
        return done

    def drop(self, keep: Callable[[PendingCommand], bool] = lambda command: False) -> None:
        """Wait for no answers any more, but for those to keep."""
        for command in self.pending:
            command.dropped = not keep(command)
        self.pending = deque(command for command in self.pending if not command.dropped)

    def inform(self, message: wire.ToDevice, payload: Sequence[memoryview] = ()) -> None:
        """Send what needs no answer, if the device is there."""
        if self.session is not None:
            self.session.command(message, None, payload)

    def came_back(self, uploaded: tuple[int, ...] | None = None) -> None:
        """Send again what a device that kept its memory may have missed.

        `uploaded` is the upload that is here and will have its reply when its round closes.
        """
        assert self.ready is not None
        sent = (self.ready.round, self.ready.turn)
        if self.ready.waiting and sent != uploaded and not self._asks_again(sent):
            message, payload = self.reply or (wire.ToDevice(), ())
            if (message.backward.round, message.backward.turn) == sent:
                self.inform(message, payload)
            else:  # its round was closed without it
                self.inform(late(*sent))
        self.send()

    def _asks_again(self, sent: tuple[int, int]) -> bool:
        if not self.pending or self.pending[0].kind != "forward":
            return False
        forward = self.pending[0].message.forward
        return (forward.round, forward.turn) == sent


def late(round: int, turn: int) -> wire.ToDevice:
    """Return the answer to an upload for a round that is closed."""
    return wire.ToDevice(backward=wire.Backward(round=round, turn=turn, late=True))
