"""Waiting for what devices have to say: with patience, reminders, and an ear for whoever asks to stop."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence

from gapsl.common.errors import Stopped, Unavailable
from gapsl.network.server.device_link import DeviceLink, LinkState
from gapsl.network.server.round_policy import RoundPolicy
from gapsl.network.server.session import Event, Inbox

FEW = 4  # names in a line of the log
REMIND = 10.0  # seconds between two lines that say who is waited for
SHARING = 20.0  # seconds that a stop waits for devices that are at the parameter server


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
        return self._policy.closes(len(self._links), there, math.inf)


def listing(names: Sequence[str]) -> str:
    """Return names for a line of a log: all of a few, or how many there are."""
    if len(names) <= FEW:
        return ", ".join(names)
    return f"{', '.join(names[:FEW])} and {len(names) - FEW} more"
