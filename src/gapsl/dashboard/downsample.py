"""Many numbers made few, as a screen can show them, and devices put in order: pure functions of arrays."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
Answer = dict[str, Any]  # JSON values, as the page takes them
NO_ANGLE = 255  # in a matrix of whole degrees


@dataclass(frozen=True, eq=False)
class Buckets:
    """Neighbouring rows put together, so that there are no more buckets than asked for."""

    edges: NDArray[np.int64]  # where each begins, and where the last ends

    @staticmethod
    def of(rows: int, most: int, first: int = 0) -> Buckets:
        """Return buckets of equal size for so many rows, from the row `first` on."""
        count = max(1, min(rows, most))
        return Buckets(first + np.linspace(0, rows, count + 1).astype(np.int64))

    def over(self, values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the mean, the least and the largest number of each bucket; NaN where it has none."""
        inside = values[self.edges[0] : self.edges[-1]]
        starts = self.edges[:-1] - self.edges[0]
        if not inside.size:
            return (np.empty(0),) * 3
        there = ~np.isnan(inside)
        counts = np.add.reduceat(there.astype(float), starts)
        sums = np.add.reduceat(np.where(there, inside, 0.0), starts)
        low = np.minimum.reduceat(np.where(there, inside, np.inf), starts)
        high = np.maximum.reduceat(np.where(there, inside, -np.inf), starts)
        empty = counts == 0
        low[empty] = high[empty] = np.nan
        return mean_of(sums, counts), low, high

    def last(self, values: Numbers) -> Numbers:
        """Return the last number of each bucket: what an axis has, so that both its ends are shown."""
        return values[self.edges[1:] - 1] if len(values) else values


def mean_of(sums: Numbers, counts: Numbers) -> Numbers:
    """Return sums by counts; NaN where nothing was counted."""
    return np.asarray(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0))


def thinned(values: ArrayLike, most: int) -> NDArray[np.int64]:
    """Return at most so many whole numbers, evenly chosen, the first and the last among them."""
    found = np.asarray(values, np.int64)
    if len(found) <= most:
        return found
    return np.unique(found[np.linspace(0, len(found) - 1, most).round().astype(int)])


class Trace:
    """Numbers by device over the rounds, in at most so many steps, however many rounds there are."""

    def __init__(self, steps: int = 96) -> None:
        self.steps, self.stride, self.rows = steps, 1, 0
        self._sums, self._counts = np.zeros((steps, 0)), np.zeros((steps, 0))

    def add(self, devices: list[int], values: list[float]) -> None:
        """Add a round's numbers; a device that has none is left out."""
        if self.rows == self.steps * self.stride:  # full: two steps become one
            for table in (self._sums, self._counts):
                table[: self.steps // 2] = table[0::2] + table[1::2]
                table[self.steps // 2 :] = 0
            self.stride *= 2
        step, self.rows = self.rows // self.stride, self.rows + 1
        if not devices:
            return
        missing = max(devices) + 1 - self._sums.shape[1]
        if missing > 0:
            self._sums = np.pad(self._sums, ((0, 0), (0, missing)))
            self._counts = np.pad(self._counts, ((0, 0), (0, missing)))
        self._sums[step, devices] += values
        self._counts[step, devices] += 1

    def means(self) -> Numbers:
        """Return the mean of each step, a row per device; NaN where it has none."""
        used = -(-self.rows // self.stride)
        sums, counts = self._sums[:used].T, self._counts[:used].T
        return mean_of(sums, counts)


def by_agreement(angles: Numbers) -> list[int]:
    """Return the devices so that those who agree stand together: leaves of average-linkage clustering.

    Follows chains of nearest neighbours, which takes the square of the number of devices.
    """
    size = len(angles)
    distance = np.where(np.isnan(angles), np.pi / 2, angles).astype(float)
    np.fill_diagonal(distance, np.inf)
    members: dict[int, list[int]] = {device: [device] for device in range(size)}
    chain: list[int] = []
    while len(members) > 1:
        if not chain:
            chain.append(next(iter(members)))
        nearest = int(np.argmin(distance[chain[-1]]))
        if len(chain) > 1 and distance[chain[-1], nearest] >= distance[chain[-1], chain[-2]]:
            one, other = sorted((chain.pop(), chain.pop()))
            weights = len(members[one]), len(members[other])
            merged = (weights[0] * distance[one] + weights[1] * distance[other]) / sum(weights)
            distance[one], distance[:, one] = merged, merged
            distance[one, one] = np.inf
            distance[other], distance[:, other] = np.inf, np.inf
            members[one] += members.pop(other)
        else:
            chain.append(nearest)
    return next(iter(members.values()), [])


def in_degrees(angles: Numbers) -> str:
    """Return a matrix of radians as whole degrees, a byte each, in base64."""
    degrees = np.where(np.isnan(angles), NO_ANGLE, np.degrees(angles).round())
    return base64.b64encode(degrees.astype(np.uint8).tobytes()).decode()


def numbers(values: Iterable[float] | Numbers, digits: int | None = None) -> list[float | None]:
    """Return numbers as JSON has them: six digits of each, or so many after the point; none for NaN."""
    if digits is not None:
        return [round(float(value), digits) if math.isfinite(value) else None for value in values]
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def padded(values: Numbers, count: int) -> list[float | None]:
    """Return a number per device, zero for those that were never there."""
    return numbers(np.pad(values, (0, max(0, count - len(values))))[:count], 0)


def mean_or_none(values: Numbers) -> float | None:
    """Return the mean of what is there."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else None
