"""Central: the uncut model on all data in one place; what split learning is measured against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gapsl.device.exchange import Exchange
from gapsl.methods.base import Parameters
from gapsl.methods.vanilla import Vanilla


class Central(Vanilla):
    """Both sides trained on one pool of data, mini-batch by mini-batch, as many a round as elsewhere."""

    summary = "baseline: the uncut model trained on everybody's data in one place"
    section: ClassVar[str | None] = None
    parameters: ClassVar[type[Parameters]] = Parameters
    pooled = True

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        """Give the one pool as many mini-batches as the devices of a round would have made."""
        (self.holder,) = present
        for turn in range(self.run.batches_per_round):
            yield Exchange((self.holder,), turn)
