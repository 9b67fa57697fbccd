"""Who has gone back to an older state of its own, and when in a round: what a replay has to repeat."""

from __future__ import annotations

from collections.abc import Collection


class GoingBack:
    """Devices that went back since it was last told, each with the round of the state it went back to."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # before their upload
        self._between: dict[int, int] = {}  # after their upload, before halves were averaged
        self._after: dict[int, int] = {}  # after that
        self._moved = False  # whether halves are averaged already in this round

    def add(self, device: int, round: int, *, uploaded: bool) -> None:
        """Take note of a device, whose upload of the round is here or not.

        Those without an upload take part in an averaging, too: after it they have something to lose.
        """
        (self._after if uploaded or self._moved else self._before)[device] = round

    def halves_move(self) -> None:
        """Take note that halves are averaged now: who has gone back takes part as it is."""
        self._between |= self._after
        self._after, self._moved = {}, True

    def told(self) -> dict[str, dict[int, int]]:
        """Return them by when they went back, and begin anew."""
        found = {"before": self._before, "between": self._between, "after": self._after}
        self._before, self._between, self._after, self._moved = {}, {}, {}, False
        return found

    @property
    def devices(self) -> Collection[int]:
        """All of them."""
        return self._before.keys() | self._between.keys() | self._after.keys()
