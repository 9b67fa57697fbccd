"""Frozen: PSL whose client-side models stay at their common start; what any cleverness must beat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from gapsl.device.exchange import Exchange, Outcome, Upload
from gapsl.methods.psl import Psl


class Frozen(Psl):
    """The server learns on the devices' random features; nothing is sent back."""

    summary = "baseline: PSL with client-side models left at their common start"
    labels_at_device: ClassVar[bool] = False
    trains_devices: ClassVar[bool] = False

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        """Ask for activations without learning."""
        for exchange in super().exchanges(round, present):
            yield replace(exchange, learn=False)

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Step as PSL does, and reply to nobody."""
        return replace(super().step(round, exchange, uploads, measure=measure), replies={})
