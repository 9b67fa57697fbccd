"""What a run has to know to recover: which stored states count, and who went back to one of them when.

A stretch of a run between two rollbacks is a generation. Under a policy that does not wait for everybody, a
second attempt at a round differs from the first, so a state is known by its round and its generation.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError


@dataclass
class Generations:
    """The generations of a run, oldest first."""

    begun: list[tuple[int, int]] = field(default_factory=list)  # generation, and the round it began from

    @property
    def current(self) -> int:
        """The generation that the run is in; 0 before the first."""
        return self.begun[-1][0] if self.begun else 0

    def begin(self, round: int) -> int:
        """Start another generation from a round, and return it."""
        self.begun.append((secrets.randbits(62) + 1, round))
        return self.current

    def restorable(self, stored: Iterable[wire.Stored]) -> set[int]:
        """Return the rounds that a device with these checkpoints can go back to; the start always is one."""
        return {0, *(found.round for found in stored if self._has(found.round, found.generation))}

    def _has(self, round: int, generation: int) -> bool:
        known = [name for name, _ in self.begun]
        if generation not in known:
            return False
        later = self.begun[known.index(generation) + 1 :]
        return all(round <= begun for _, begun in later)


class Rollbacks:
    """Devices that went back since the last record, and the round they went back to: a replay repeats it."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # before their upload
        self._between: dict[int, int] = {}  # after their upload, before client-side models were averaged
        self._after: dict[int, int] = {}  # after that
        self._averaged = False  # whether client-side models are averaged already in this round

    def add(self, device: int, round: int, *, uploaded: bool) -> None:
        """Take note of a device, whose upload of the round is here or not.

        Those without an upload take part in an averaging, too: after it they have something to lose.
        """
        (self._after if uploaded or self._averaged else self._before)[device] = round

    def averaging(self) -> None:
        """Take note that client-side models are averaged now: who has gone back takes part as it is."""
        self._between |= self._after
        self._after, self._averaged = {}, True

    def drain(self) -> dict[str, dict[int, int]]:
        """Return them by when they went back, and begin anew."""
        found = {"before": self._before, "between": self._between, "after": self._after}
        self._before, self._between, self._after, self._averaged = {}, {}, {}, False
        return found

    @property
    def devices(self) -> Collection[int]:
        """All of them."""
        return self._before.keys() | self._between.keys() | self._after.keys()


def without_checkpoints(restorable: Mapping[int, set[int]], rounds: Collection[int]) -> list[int]:
    """Return the devices with which a run that has these checkpoints would begin anew.

    They have none of them, or, where none is common to all, lack the newest.
    """
    trained = set(rounds) - {0}
    has = {device: found & trained for device, found in restorable.items()}
    if not trained or set.intersection(*has.values()):
        return []
    without = [device for device, found in has.items() if not found]
    return without or [device for device, found in has.items() if max(trained) not in found]


def lacks_checkpoints(rounds: Collection[int]) -> WireError:
    """Return why such a device is refused."""
    known = ", ".join(str(round) for round in sorted(set(rounds) - {0}))
    return WireError(
        wire.OTHER_DATA,
        f"of the run's checkpoints (after round {known}) none that all have is in its folder; start it with "
        "the --state that it had. If it was away while the run did not wait for it, serve with --closing "
        "fraction:SHARE or deadline:SECONDS again; or start a new run",
    )
