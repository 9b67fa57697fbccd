"""Devices that misbehave on purpose, to see what a method makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.common.streams import random_subset, torch_stream
from gapsl.device.device import Device
from gapsl.device.exchange import Upload

Kind = Literal["flip", "labels", "permute", "noise", "scale"]
TOO_LONG = 100.0  # how many times the activations of `scale` are too long


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and at which devices."""

    kind: Kind
    devices: tuple[int, ...]


def make_faults(spec: str, *, devices: int, seed: int) -> Faults | None:
    """Return the faults of a spec such as `noise:2`, drawn from the run's seed; None for `none`."""
    if spec == "none":
        return None
    kind, _, count = spec.partition(":")
    if kind not in get_args(Kind):
        raise InputError(f"unknown fault {kind!r}; {nearest(kind, get_args(Kind))}, written like noise:2")
    if not count.isdecimal() or not 1 <= int(count) < devices:
        raise InputError(
            f"{spec}: write {kind}:N with N from 1 to {devices - 1}: one of the devices ({devices}) is honest"
            if devices > 1
            else f"{spec}: a run with faults needs an honest device, too; set devices = 2 or more"
        )
    return Faults(cast(Kind, kind), random_subset(devices, int(count), seed, "faults", round=0))


class FaultyDevice(Device):
    """A device that spoils what it sends.

    Labels become random, or each the next class; activations become noise of their mean and deviation, or
    a hundred times too long.
    """

    def __init__(self, healthy: Device, kind: Kind, classes: int) -> None:
        vars(self).update(vars(healthy))  # it takes the place of the other
        self.kind, self.classes = kind, classes

    def forward(self, round: int, turn: int = 0, *, learn: bool = True) -> Upload:
        """Run the next mini-batch up to the cut, and spoil what is sent."""
        return self._spoiled(super().forward(round, turn, learn=learn))

    def propose(self, round: int, turn: int) -> Upload:
        """Propose a step, and spoil what is sent."""
        return self._spoiled(super().propose(round, turn))

    def _spoiled(self, upload: Upload) -> Upload:
        rows, labels = upload.pack()
        labels = labels.clone()
        own = slice(len(upload.labels))  # probes have no label
        generator = torch_stream(self.seed, "fault", self.id, upload.round, upload.turn)
        if self.kind == "scale":
            rows = rows * TOO_LONG
        elif self.kind == "permute":
            labels[own] = (upload.labels + 1) % self.classes
        elif self.kind == "labels":
            labels[own] = torch.randint(self.classes, labels.shape, generator=generator).to(labels)[own]
        else:
            noise = torch.randn(rows.shape, generator=generator).to(rows)
            rows = noise * rows.std() + rows.mean()
        probes = upload.rows - len(upload.activations)
        return Upload.unpack(self.id, upload.round, upload.turn, rows, labels, probes)
