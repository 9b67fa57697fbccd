"""The dispatcher asks devices and waits for their answers: who is there, who owes what, who begins again.

The run's thread asks and waits; what devices send comes as events from their sessions, and one handler does
what has to follow. A command stays pending until it is answered and is sent again to a device that comes
back, so that a broken link costs time and nothing else. A device that comes back without what it had in
memory begins again from what it stored. Where the run waits for everybody, everybody goes back with it, so
that the end is the same as without it; where it does not, it is written down who went back where, so that the
run can be replayed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from gapsl.common.errors import Rewind
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.errors import RefusalLog, WireError
from gapsl.network.protocol.settings import Pace, RoundPolicy
from gapsl.network.server.device_link import DeviceLink, EventQueue, LinkState, PendingCommand, late
from gapsl.network.server.fleet_state import FleetState, Rollbacks, lacks_checkpoints, without_checkpoints
from gapsl.network.server.service import Roster
from gapsl.network.server.session import GIVES_UP, Answered, Event, ExpectedAnswer, Heard, Joined, Left


class Dispatcher:
    """Links to all devices, the exchange that is open, and what has happened to devices in it."""

    def __init__(
        self,
        roster: Roster,
        state: FleetState,
        contract: TensorContract,
        *,
        policy: RoundPolicy,
        total_rounds: int,
        patience: float,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.state, self.contract, self.policy, self._total_rounds = state, contract, policy, total_rounds
        self.tell, self._refusals = tell, RefusalLog(tell)
        self.uploaded: Callable[[int, int], None] = lambda device, size: None  # told of each upload's bytes
        self.links = {device: DeviceLink(name) for device, name in enumerate(roster.names)}
        self._events = EventQueue(roster.inbox, self.links, policy, patience=patience, stop=stop, tell=tell)
        self.departures = dict.fromkeys(self.links, 0)  # how often each device's link has ended
        self.round = 0  # the one that is open, or was last
        self.arrived: set[int] = set()  # whose uploads of the exchange have been taken
        self._trained: set[int] = set()  # whose uploads of the round have been, in this exchange or before
        self.restarted: set[int] = set()  # who of them has begun again since, and has no use for a reply
        self.absent: list[tuple[int, int]] = []  # turns and devices that the round was closed without
        self.rollbacks = Rollbacks()
        self._open: tuple[int, int] | None = None  # the exchange that is open: round and turn
        self._uploads: deque[Answered] = deque()  # of the open exchange, not taken yet
        self.pace = Pace()
        self._training = False  # whether devices are in the present generation, or begin in it

    # --- beginning

    def gather(self) -> None:
        """Wait until every device has said what it has; of a run that goes on that is known already."""
        if self.policy.waits_for_all or len(self.state.devices) < len(self.links):
            self.wait(lambda: all(link.ready is not None for link in self.links.values()))
        self.state.keep()

    def newest_common_checkpoint(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's rounds that everybody has who is waited for.

        A device that lacks them all is refused, and waited for: with it the run would begin anew. One that
        asks for a fresh start is not counted. Where the run waits for all, the server stores a round when
        all devices have, so it had one of these: most likely it was started with another folder.
        """
        self._training = False
        if not self.policy.waits_for_all:
            return max(rounds, default=None)

        def counted() -> dict[int, set[int]]:
            return self.state.counted({device: link.ready for device, link in self.links.items()}, rounds)

        while lost := without_checkpoints(counted(), rounds):
            for device in lost:
                self._refuse(self.links[device], rounds, common=True)
            self.step()
        return max(set(rounds).intersection(*counted().values()), default=None)

    def begin(self, round: int) -> None:
        """Let every device begin from what it stored after a round, or from the last one before it."""
        self._training = False
        self._drain()
        self.state.begin(round)
        self.rollbacks, self.absent, self.arrived = Rollbacks(), [], set()
        self._trained, self.restarted = set(), set()
        self._training, self.round, self._open = True, round, None
        self._uploads.clear()
        for device, link in self.links.items():
            link.reply = None
            if link.session is not None:
                self._begin(device)
        if self.policy.waits_for_all:
            self.wait(lambda: all(link.state is LinkState.IDLE for link in self.links.values()))

    def _drain(self) -> None:
        """Wait for the answers that are on their way; what they are about has no meaning any more."""
        for link in self.links.values():
            if link.state is LinkState.SHARING and link.session is not None:
                link.session.close()  # it waits at the parameter server for others, who will not come
                link.session = None
            first = link.pending[0] if link.pending and link.session is not None else None
            link.drop(keep=lambda command, first=first: command is first)  # type: ignore[misc]
        self.wait(lambda: not any(link.pending for link in self.links.values()), self._soon(needed=False))
        for device, link in self.links.items():
            if link.pending:
                self._cut_off(device)

    # --- an exchange

    def exchange(
        self, devices: Sequence[int], message: wire.ToDevice, due: ExpectedAnswer
    ) -> Iterator[Answered]:
        """Ask devices for their uploads, and yield them as they arrive, until the policy closes the exchange.

        Devices whose certificate is not good any more are refused first.
        """
        for link in self.links.values():
            if link.session is not None and (error := link.session.unwelcome()) is not None:
                self.tell(f"{link.name} is refused: {error}")
                link.refuse(error)
        self.round, turn = message.forward.round, message.forward.turn
        self._open, self.arrived = (self.round, turn), set()
        if turn == 0:
            self._trained, self.restarted = set(), set()
        opened, missing, asked = time.monotonic(), set(devices), set[int]()
        policy, quorum = self.policy.of_round(len(devices), self.pace.usual), self.policy.enough(len(devices))
        while not policy.closes(
            len(devices) - len(self._lost(missing)), len(self.arrived), time.monotonic() - opened
        ):
            for device in sorted(missing - asked - self._lost(missing)):
                if self.policy.waits_for_all or self.links[device].state is LinkState.IDLE:
                    self.links[device].asked = time.monotonic()
                    self.links[device].ask(message, due)
                    asked.add(device)
            ends = opened + policy.seconds
            if not self._uploads:  # past its end a round is open until enough come, or patience ends
                self.step(ends if time.monotonic() < ends else None)
            if self._uploads:
                event = self._uploads.popleft()
                missing.discard(event.session.device)
                self.arrived.add(event.session.device)
                self._trained.add(event.session.device)
                if len(self.arrived) == quorum and not message.forward.proposes:
                    self.pace.add(time.monotonic() - opened)
                yield event
        self._open = None
        for event in self._uploads:  # they came while another device was waited for
            self.links[event.session.device].inform(late(self.round, turn))
        self._uploads.clear()
        for device in missing:
            if self.links[device].session is None:
                self.links[device].drop()
            self.absent.append((turn, device))

    def drain(self) -> tuple[list[tuple[int, int]], dict[str, dict[int, int]]]:
        """Return who was absent since this was asked, and who has gone back to which round, by when."""
        absent, self.absent, self.arrived, self._trained = self.absent, [], set(), set()
        return absent, self.rollbacks.drain()

    # --- asking and waiting

    def ask(
        self,
        devices: Iterable[int],
        message: wire.ToDevice | Callable[[int], wire.ToDevice],
        due: ExpectedAnswer,
        payload: Sequence[memoryview] = (),
        *,
        needed: bool = False,
    ) -> list[Answered]:
        """Return the answers of devices; unless needed, who is away is left out, who is silent cut off."""
        commands: dict[int, PendingCommand] = {}
        for device in devices:
            if needed or self.policy.waits_for_all or self.links[device].session is not None:
                asked = message(device) if callable(message) else message
                commands[device] = self.links[device].ask(asked, due, payload, needed=needed)
        if not self.wait(lambda: all(command.done for command in commands.values()), self._soon(needed)):
            for device, command in commands.items():
                if not command.done:
                    self._cut_off(device)
        return [command.answer for command in commands.values() if command.answer is not None]

    def wait(self, done: Callable[[], bool], until: float | None = None) -> bool:
        """Handle what happens until something is done; False: the time is up."""
        while not (finished := done()) and self.step(until):
            pass
        return finished

    def step(self, until: float | None = None) -> bool:
        """Wait for something to happen, and do what has to follow; False: the time is up."""
        given_up = time.monotonic() + self._events.patience
        while (event := self._events.next(until, given_up, training=self._training)) is not None:
            if self._handle(event):
                return True
        return False

    def _soon(self, needed: bool) -> float | None:
        """Return when those who are not waited for have had time enough to answer."""
        waits = needed or self.policy.waits_for_all
        return None if waits else time.monotonic() + self.policy.answer_seconds(self.pace.usual)

    def _refuse(self, link: DeviceLink, rounds: Collection[int], *, common: bool) -> None:
        """End the link of a device that has lost what it had stored."""
        if link.session is not None:
            self.tell(f"{link.name} is refused: it lacks the run's checkpoints")
            link.refuse(lacks_checkpoints(rounds, common=common))

    def _cut_off(self, device: int) -> None:
        """End the link of a device that is connected, but silent; if it lives it comes back."""
        link = self.links[device]
        link.drop()
        if link.session is not None:
            link.refuse(WireError(wire.LATE, "no answer in time; nothing is lost, join again"))
            self.departures[device] += 1
            self.tell(f"{link.name} does not answer, and is not waited for")

    # --- events

    def _handle(self, event: Event) -> bool:
        """Do what has to follow from an event; False: it was no news."""
        link = self.links[event.session.device]
        if isinstance(event, Heard):
            return False  # it will hear again that the run is finished
        if isinstance(event, Joined):
            return self._joined(link, event)
        if link.session is not event.session:  # of a connection that has ended
            if isinstance(event, Left) and event.reason.startswith(GIVES_UP):
                self.tell(f"{link.name} could not begin: {event.reason}")
            return False
        if isinstance(event, Left):
            link.session = None
            self.departures[event.session.device] += 1
            self.tell(f"{link.name} has left: {event.reason}")
            self._drop_unneeded(link)
        else:
            if isinstance(upload := event.answer, wire.Upload) and self._training:
                self.uploaded(event.session.device, upload.activations.bytes + 8 * len(upload.labels))
                if (upload.round, upload.turn) == self._open:
                    self._uploads.append(event)
                else:
                    link.inform(late(upload.round, upload.turn))  # before what it is asked next
            link.answered(event)
        return True

    def _drop_unneeded(self, link: DeviceLink) -> None:
        """Drop the commands of a device that is not connected any more, but for those it is asked again."""
        if not self._training:
            link.drop()
        elif not self.policy.waits_for_all:
            link.drop(keep=lambda command: command.needed or command.kind == "forward")

    def _joined(self, link: DeviceLink, event: Joined) -> bool:
        """Let a device in; one that kept its memory goes on, another one begins again."""
        device = event.session.device
        try:
            self.state.check(device, event.ready, self.contract)
        except WireError as error:
            self._refusals.refused(link.name, error)
            event.session.refuse(error)
            return False
        beginning = bool(link.pending) and link.pending[0].kind == "begin"
        link.session, link.ready, link.has = event.session, event.ready, set()
        self.tell(f"{link.name} connected")
        self._drop_unneeded(link)  # its old link may have ended unnoticed
        link.drop(keep=lambda command: command.kind != "begin")
        if not self._training:
            return True
        if event.ready.generation == self.state.generations.current and not beginning:
            link.came_back(self._open if self._has_uploaded(device) else None)
            return True
        if (self.policy.waits_for_all and not beginning) or any(command.needed for command in link.pending):
            link.drop()  # it was asked before it left: no answer is on its way
            raise Rewind(f"{link.name} restarted and lost what it had in memory")
        self._begin(device)
        return True

    def _begin(self, device: int) -> None:
        """Let a device begin from the newest of its states that counts."""
        link, generation = self.links[device], self.state.generations.current
        round = max(found for found in self.state.restorable(link.ready) if found <= self.round)
        fresh = link.ready is not None and link.ready.fresh
        if self.policy.waits_for_all and round != self.round and not fresh:
            raise Rewind(f"{link.name} has lost its checkpoint of round {self.round}")
        if round == 0 and (had := self.state.begins_anew(device, fresh=fresh)):
            self._refuse(link, [had], common=False)
            return
        uploaded = device in self._trained or self._has_uploaded(device)
        if uploaded:
            self.restarted.add(device)
            link.drop(keep=lambda command: command.kind != "forward")  # about what it has not any more
        if round != self.round:
            self.tell(f"{link.name} goes on from round {round} of its own, the run is at {self.round}")
            self.rollbacks.add(device, round, uploaded=uploaded)
        begin = wire.Begin(round=round, total_rounds=self._total_rounds, generation=generation)
        link.ask_first(wire.ToDevice(begin=begin), ExpectedAnswer("done"))

    def _lost(self, missing: set[int]) -> set[int]:
        """Return who began again after an earlier exchange of the round, and has not what is asked now."""
        return {device for device in missing & self.restarted if not self._has_uploaded(device)}

    def _has_uploaded(self, device: int) -> bool:
        """Say whether a device's upload of the exchange is here, taken or not."""
        return device in self.arrived or any(event.session.device == device for event in self._uploads)
