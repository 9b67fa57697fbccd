"""Short stand-ins for long gradients: count sketches, which keep angles, and sums that many can add to.

A sketch adds up coordinates in buckets, with random signs. It is linear, inner products of sketches are on
average those of the gradients, and a cosine is off by about 1/sqrt(buckets) where gradients are at right
angles, less where they agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

BUCKETS = 1 << 16


class CountSketch:
    """A linear map from gradients (d,) to sketches (k,), drawn from a generator.

    Coordinate j goes to bucket (j + shift[j // k]) mod k. The shifts are random: two coordinates meet with
    probability 1/k or never, as under a random hash, and memory is read in order, which is ten times faster.
    """

    def __init__(self, size: int, generator: torch.Generator, like: Tensor, buckets: int = BUCKETS) -> None:
        self.size, self.buckets = size, min(size, buckets)
        blocks = -(-size // self.buckets)
        self._shifts: list[int] = torch.randint(self.buckets, (blocks,), generator=generator).tolist()
        self._signs = torch.randint(2, (size,), generator=generator).mul_(2).sub_(1).to(like)

    def __call__(self, gradient: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the sketch of a gradient, in `out` if given."""
        found = gradient.new_zeros(self.buckets) if out is None else out.zero_()
        signed = gradient * self._signs
        for block, shift in zip(torch.split(signed, self.buckets), self._shifts, strict=True):
            straight = min(len(block), self.buckets - shift)  # the rest goes round
            found[shift : shift + straight] += block[:straight]
            found[: len(block) - straight] += block[straight:]
        return found


class TreeSum:
    """A sum of gradients by a fixed binary tree over device ids, whoever adds which part of it.

    The two devices, or branches of them, that are nearest in the tree are added first, so that partial sums
    over ranges of devices add up to the same bits however the ranges were cut. Devices come in ascending
    order. Memory is for about log2 of their number.
    """

    def __init__(self, after: int | None = None) -> None:
        self._after = after  # devices up to this one are added elsewhere; None: there are none
        self._branches: list[tuple[int, Tensor]] = []  # by one of their devices
        self.devices: list[int] = []

    def add(self, device: int, gradient: Tensor, weight: float = 1.0) -> None:
        """Add the next device's gradient, or a branch's sum by one of its devices, times a weight."""
        self._join(device)
        self._branches.append((device, gradient * weight))
        self.devices.append(device)

    def branches(self, before: int | None = None) -> list[tuple[int, Tensor]]:
        """Return the sums of what belongs together if devices from this one on are added elsewhere."""
        self._join(before)
        return self._branches

    def _join(self, following: int | None) -> None:
        """Add branches that are nearer to each other than to their neighbours."""
        while len(self._branches) > 1:
            (first, total), (second, other) = self._branches[-2:]
            before = self._branches[-3][0] if len(self._branches) > 2 else self._after
            if not nearness(before, first) > nearness(first, second) < nearness(second, following):
                return
            self._branches[-2:] = [(first, total.add_(other))]


def nearness(one: int | None, other: int | None) -> float:
    """Return how many levels up the tree two devices meet; nobody is infinitely far from everybody."""
    return math.inf if one is None or other is None else (one ^ other).bit_length()


def total_of(branches: Iterable[tuple[int, Tensor]]) -> Tensor:
    """Return the sum of branches that several have added up, each a part of one tree."""
    found = TreeSum()
    for device, total in sorted(branches, key=lambda branch: branch[0]):
        found.add(device, total)
    ((_, total),) = found.branches()
    return total
