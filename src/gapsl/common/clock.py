"""Where the time goes: seconds by what was done, and by whom it was done for."""

from __future__ import annotations

import time
from collections.abc import Mapping


class timed:  # noqa: N801 - reads as a word where it is used
    """Add the time spent inside the block to one entry of a dictionary.

    What a block inside it adds to the dictionary counts there alone, so that nothing counts twice.
    """

    def __init__(self, seconds: dict[str, float], phase: str) -> None:
        self._seconds, self._phase = seconds, phase

    def __enter__(self) -> None:
        self._counted = sum(self._seconds.values())
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self._begun
        inside = sum(self._seconds.values()) - self._counted
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + spent - inside


class Clock:
    """Seconds by device and phase, since they were last taken."""

    def __init__(self) -> None:
        self._spent: dict[int, dict[str, float]] = {}

    def of(self, device: int) -> dict[str, float]:
        """Return a device's seconds by phase, to add to."""
        return self._spent.setdefault(device, {})

    def add(self, device: int, spent: Mapping[str, float]) -> None:
        """Add what somebody else has measured."""
        own = self.of(device)
        for phase, seconds in spent.items():
            own[phase] = own.get(phase, 0.0) + seconds

    def take(self) -> dict[int, dict[str, float]]:
        """Return all of it, and begin anew."""
        spent, self._spent = self._spent, {}
        return spent
