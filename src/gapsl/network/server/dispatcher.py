"""The server's talk with all its devices: who is there, who owes an answer, who has to begin again.

The run's thread asks and waits; what devices send comes as events from their sessions. A command stays owed
until it is answered and is sent again to a device that comes back, so that a broken link costs time and
nothing else. A device that comes back without what it had in memory begins again from what it stored. Where
the run waits for everybody, everybody goes back with it, so that the end is the same as without it; where it
does not, it is written down who went back where, so that the run can be replayed.
"""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gapsl.common.errors import InputError
from gapsl.fleets.base import Rewind, Stopped, Traffic
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.server.device_link import Line, late
from gapsl.network.server.fleet_state import Memory
from gapsl.network.server.recovery import GoingBack
from gapsl.network.server.round_policy import Closing
from gapsl.network.server.session import (
    GIVES_UP,
    Answer,
    Answered,
    Due,
    Event,
    Heard,
    Inbox,
    Joined,
    Left,
    Session,
)

FEW = 4  # names in a line of the log
REMIND = 10.0  # seconds between two lines that say who is waited for
SHARING = 20.0  # seconds that a stop waits for devices that are at the parameter server
SLOW = 5.0  # seconds that a deadline gives at least for what is no round: an evaluation batch, a checkpoint


@dataclass(frozen=True)
class Begun:
    """A device has begun from a stored round, or from the start."""

    session: Session


Happening = Joined | Left | Answered | Begun


class Correspondence:
    """Lines to all devices, the exchange that is open, and what has happened to devices in it."""

    def __init__(
        self,
        names: Sequence[str],
        inbox: Inbox,
        memory: Memory,
        check: Callable[[int, wire.Ready], None],
        *,
        closing: Closing,
        total_rounds: int,
        patience: float,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._inbox, self._memory, self._check = inbox, memory, check
        self.closing, self._total_rounds = closing, total_rounds
        self._patience, self._stop, self._tell = patience, stop, tell
        self.lines = {device: Line(name) for device, name in enumerate(names)}
        nothing = dict.fromkeys(self.lines, 0)
        self.traffic = Traffic(dict(nothing), dict(nothing))
        self.departures = dict(nothing)  # how often each device's link has ended
        self.round = 0  # the one that is open, or was last
        self.open: tuple[int, int] | None = None  # the exchange that is open: round and turn
        self.arrived: set[int] = set()  # whose uploads of the open exchange are here
        self.anew: set[int] = set()  # who of them has begun again since, and has no use for a reply
        self.gone_back = GoingBack()
        self._begun = False  # whether devices are in this process's generation
        self._stop_delayed = math.inf  # since when a stop waits for devices that are at the parameter server
        self._stash: deque[Happening] = deque()  # what happened while one device was waited for

    # --- beginning

    def gather(self) -> None:
        """Wait until every device has said what it has; of a run that goes on that is known already."""
        known = not self.closing.waits and len(self._memory.devices) == len(self.lines)
        while not known and any(line.ready is None for line in self.lines.values()):
            self.next()
        self._memory.keep()

    def common(self, rounds: Collection[int]) -> int | None:
        """Return the newest of the server's rounds that everybody has who is waited for."""
        if self.closing.waits:
            self._turn_away_lost(set(rounds))
            for line in self.lines.values():
                rounds = self._restorable(line) & set(rounds)
        return max(rounds, default=None)

    def _turn_away_lost(self, rounds: set[int]) -> None:
        """Wait for the states of devices that come without them: with such a device the run would begin anew.

        Where the run waits for all, the server stores a round when all devices have, so they had one of
        these: most likely they were started with another folder.
        """
        trained = rounds - {0}
        newest = max(rounds, default=0)
        where = (
            "its folder; start it with the --state that it had. If it was away while the run did not wait "
            "for it, serve with --closing fraction:SHARE or deadline:SECONDS again; or start a new run"
        )

        def lost() -> list[Line]:
            """Return who has none of them, or lacks the newest where none is common to all."""
            has = {line.name: self._restorable(line) & trained for line in self.lines.values()}
            if not trained or set.intersection(*has.values()):
                return []
            without = [line for line in self.lines.values() if not has[line.name]]
            return without or [line for line in self.lines.values() if newest not in has[line.name]]

        while without := lost():
            for line in without:
                if line.session is not None:
                    self._tell(f"{line.name} is refused: it lacks the run's checkpoints")
                    kept = listing([str(round) for round in sorted(trained)])
                    why = f"of the run's checkpoints (after round {kept}) none that all have is in {where}"
                    line.session.refuse(WireError(wire.OTHER_DATA, why))
                    line.session = None
            self._event(None)

    def begin(self, round: int) -> None:
        """Let every device begin from what it stored after a round, or from the last one before it."""
        self._drain()
        self._memory.begin(round)
        self._begun, self.round, self.arrived = True, round, set()
        self.gone_back = GoingBack()
        self._stash.clear()
        for device, line in self.lines.items():
            line.reply = None
            if line.session is not None:
                self._begin(device)
        while self.closing.waits and not all(line.free for line in self.lines.values()):
            self.next()

    # --- an exchange

    def open_exchange(self, round: int, turn: int) -> None:
        """Let uploads of a round and turn count, from devices that are still who they were."""
        for line in self.lines.values():
            if line.session is not None and (why := line.session.unwelcome()):
                self._tell(f"{line.name} is refused: {why}")
                line.session = None
        self.round, self.open, self.arrived, self.anew = round, (round, turn), set(), set()

    def close_exchange(self, missing: Collection[int]) -> None:
        """Let nothing that comes from now on count; those who are missing and away are not asked again."""
        assert self.open is not None
        exchange, self.open = self.open, None
        for event in self._kept_uploads():  # they came while another device was waited for
            self._stash = deque(other for other in self._stash if other is not event)
            self._count(event)
            self.lines[event.session.device].inform(late(*exchange))
        for device in missing:
            if self.lines[device].session is None:
                self.lines[device].owed.clear()

    def went_back(self) -> dict[str, dict[int, int]]:
        """Return who has gone back to which round since this was asked, by when in the round it did."""
        self.arrived = set()
        return self.gone_back.told()

    # --- asking and waiting

    def asked(
        self,
        devices: Iterable[int],
        message: wire.ToDevice,
        due: Due,
        *,
        payload: Sequence[memoryview] = (),
        wait: bool = False,
    ) -> Iterator[Answered]:
        """Ask devices, and yield their answers; who is away is left out unless it is waited for."""
        wait = wait or self.closing.waits
        asked = [d for d in devices if wait or self.lines[d].session is not None]
        for device in asked:
            self.lines[device].ask(message, due, payload)
        yield from self.answers(asked, wait=wait)

    def answers(self, devices: Iterable[int], *, wait: bool = True) -> Iterator[Answered]:
        """Yield the answers of devices that were asked, as they arrive."""
        missing = set(devices)
        until = self._soon(wait)
        while missing:
            event = self.next(until)
            if event is None:
                for device in missing:
                    self._cut_off(device)
                return
            device = event.session.device
            if device not in missing:
                continue
            if isinstance(event, Answered) and not isinstance(event.answer, wire.Upload):
                missing.remove(device)
                yield event
            elif isinstance(event, Left | Joined) and not wait:
                missing.remove(device)

    def consulted(
        self, device: int, message: wire.ToDevice, due: Due, payload: Sequence[memoryview]
    ) -> Answered | None:
        """Ask one device in the middle of an exchange; what others say meanwhile is kept for later."""
        line, waits = self.lines[device], self.closing.waits
        if line.session is None and not waits:
            return None
        line.ask(message, due, payload)
        until = self._soon(waits)
        while True:
            event = self._event(until)
            if event is None:
                self._cut_off(device)
                return None
            if isinstance(event, Answered) and event.session.device == device:
                return event
            gone = isinstance(event, Left | Joined) and event.session.device == device and not waits
            if gone:
                line.owed.clear()
            if isinstance(event, Joined):
                self._joined(event.session.device)
            elif not gone:
                self._stash.append(event)
            if gone:
                return None

    def next(self, until: float | None = None) -> Happening | None:
        """Wait for something to happen, and do what has to follow; None: the time is up."""
        event = self._stash.popleft() if self._stash else self._event(until)
        if isinstance(event, Joined):
            self._joined(event.session.device)
        elif isinstance(event, Left):
            line = self.lines[event.session.device]
            if not self.closing.waits and line.session is None:
                line.owed = deque(owed for owed in line.owed if owed.kind in ("forward", "share"))
        elif isinstance(event, Answered):
            self._count(event)
        return event

    def _soon(self, wait: bool) -> float | None:
        """Return when those who are not waited for have had time enough to answer."""
        return None if wait else time.monotonic() + max(self.closing.seconds, SLOW)

    def _cut_off(self, device: int) -> None:
        """End the link of a device that is connected, but silent; if it lives it comes back."""
        line = self.lines[device]
        line.owed.clear()
        if line.session is not None:
            line.session.refuse(WireError(wire.LATE, "no answer in time; nothing is lost, join again"))
            line.session = None
            self.departures[device] += 1
            self._tell(f"{line.name} does not answer, and is not waited for")

    def _drain(self) -> None:
        """Wait for the answers that are on their way; what they are about has no meaning any more."""
        for line in self.lines.values():
            while len(line.owed) > 1 or (line.owed and line.session is None):
                line.owed.pop()
            if line.session is not None and line.owed and line.owed[0].kind == "share":
                # It waits at the parameter server for others, who will not come.
                line.session.close()
                line.session = None
                line.owed.clear()
        until = self._soon(self.closing.waits)
        while any(line.owed for line in self.lines.values()):
            event = self._event(until)
            if event is None:
                for device in [device for device, line in self.lines.items() if line.owed]:
                    self._cut_off(device)
            elif isinstance(event, Joined | Left):
                self.lines[event.session.device].owed.clear()

    def _count(self, event: Answered) -> None:
        """Count the bytes of an upload, as a device of this process does."""
        if isinstance(event.answer, wire.Upload):
            size = event.answer.activations.bytes + 8 * len(event.answer.labels)
            self.traffic.add(event.session.device, sent=size)

    def _kept_uploads(self) -> list[Answered]:
        """Return the uploads among what is kept for later."""
        kept = [event for event in self._stash if isinstance(event, Answered)]
        return [event for event in kept if isinstance(event.answer, wire.Upload)]

    def _uploaded(self, device: int) -> bool:
        """Say whether a device's upload of the open exchange is here, counted or kept for later."""
        return device in self.arrived or any(e.session.device == device for e in self._kept_uploads())

    # --- coming back

    def _joined(self, device: int) -> None:
        line = self.lines[device]
        assert line.ready is not None
        beginning = bool(line.owed) and line.owed[0].kind == "begin"
        if beginning:
            line.owed.popleft()
        if not self._begun:
            return
        if line.ready.generation == self._memory.lineage.current and not beginning:
            line.came_back(self.open if self._uploaded(device) else None)
            return
        sharing = any(owed.kind == "share" for owed in line.owed)
        if (self.closing.waits and not beginning) or sharing:
            line.owed.clear()  # it was asked before it left: no answer is on its way
            raise Rewind(f"{line.name} has come back without what it had in memory")
        self._begin(device)

    def _begin(self, device: int) -> None:
        """Let a device begin from the newest of its states that counts."""
        line, generation = self.lines[device], self._memory.lineage.current
        round = max(found for found in self._restorable(line) if found <= self.round)
        if self.closing.waits and round != self.round:
            raise Rewind(f"{line.name} has lost its checkpoint of round {self.round}")
        uploaded = self._uploaded(device)
        if uploaded:
            self.anew.add(device)
        if round != self.round:
            self._tell(f"{line.name} goes on from round {round} of its own, the run is at {self.round}")
            self.gone_back.add(device, round, uploaded=uploaded)
        begin = wire.Begin(round=round, total_rounds=self._total_rounds, generation=generation)
        line.ask_first(wire.ToDevice(begin=begin), Due("done"))

    def _restorable(self, line: Line) -> set[int]:
        return self._memory.lineage.restorable(line.ready.stored if line.ready is not None else ())

    # --- events

    def _event(self, until: float | None) -> Happening | None:
        """Wait for an event and take note of who is there and what is answered."""
        given_up = time.monotonic() + self._patience
        while (event := self._wait(until, given_up)) is not None:
            line = self.lines[event.session.device]
            if isinstance(event, Heard):  # it will hear again that the run is finished
                continue
            if isinstance(event, Joined):
                try:
                    self._check(event.session.device, event.ready)
                except WireError as error:
                    self._tell(f"{line.name} is refused: {error}")
                    event.session.refuse(error)
                    continue
                line.session, line.ready, line.has = event.session, event.ready, set()
                self._tell(f"{line.name} is here")
                return event
            if line.session is not event.session:  # of a connection that has ended
                if isinstance(event, Left) and event.reason.startswith(GIVES_UP):
                    self._tell(f"{line.name} could not begin: {event.reason}")
                continue
            if isinstance(event, Left):
                line.session = None
                self.departures[event.session.device] += 1
                self._tell(f"{line.name} has left: {event.reason}")
                return event
            upload = event.answer
            if isinstance(upload, wire.Upload) and about(upload) != self.open:
                line.inform(late(upload.round, upload.turn))  # before what it is asked next
            return Begun(event.session) if line.answered().kind == "begin" else event
        return None

    def _wait(self, until: float | None, given_up: float) -> Event | None:
        """Wait for whatever a session has to say; None: the time is up."""
        reminded = time.monotonic()
        while True:
            now = time.monotonic()
            if self._stop():
                self._stop_delayed = min(self._stop_delayed, now) if self._sharing() else math.inf
                if not self._running() or now >= self._stop_delayed + SHARING:
                    raise Stopped("asked to stop")
            if until is not None and now >= until and self._inbox.empty():
                return None
            if now >= given_up:
                raise InputError(
                    f"nothing from {self._awaited()} for {self._patience:.0f} s; nothing is lost: "
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
        away = [line.name for line in self.lines.values() if line.session is None]
        slow = [line.name for line in self.lines.values() if line.session is not None and line.owed]
        where = " at the parameter server" if slow and not away and self._sharing() else ""
        return (listing(away or slow) or "the devices") + where

    def _sharing(self) -> bool:
        """Say whether a device that is there is at the parameter server, to bring its half or fetch one."""
        there = [line for line in self.lines.values() if line.session is not None]
        return any(line.owed and line.owed[0].kind == "share" for line in there)

    def _running(self) -> bool:
        """Say whether enough are there for a round to end, so that a stop can wait for it."""
        there = sum(line.session is not None for line in self.lines.values())
        return self._begun and self.closing.closes(len(self.lines), there, math.inf)


def listing(names: Sequence[str]) -> str:
    """Return names for a line of a log: all of a few, or how many there are."""
    if len(names) <= FEW:
        return ", ".join(names)
    return f"{', '.join(names[:FEW])} and {len(names) - FEW} more"


def about(answer: Answer) -> tuple[int, int] | None:
    """Return the round and turn of an upload; None: it is something else."""
    return (answer.round, answer.turn) if isinstance(answer, wire.Upload) else None
