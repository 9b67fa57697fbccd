"""Which stored states belong to a run: when it goes back, all that came after is void.

A stretch of a run between two goings back is a generation. Under a policy that does not wait for everybody, a
second attempt at a round differs from the first, so a state is known by its round and its generation.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from gapsl.network.protocol import wire_pb2 as wire


@dataclass
class Lineage:
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
