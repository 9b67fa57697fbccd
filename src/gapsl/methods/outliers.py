"""One device is not the fleet: who is left out of a round because its numbers cannot be, or are far off.

A device is an outlier if something of it is not finite. Where three or more devices take part, it is one as
well if its loss or the length of its gradient is a hundred times what is usual, or if it says that a
cross-entropy is negative. Usual is what the others' median is, and no less than what an untrained model has
(the loss) or than the running median of the lengths that were accepted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FAR = 100.0  # times what is usual
FEWEST = 3  # devices among which one can be told from the others
WINDOW = 1000  # accepted lengths that the running median is over

ROUNDING = 1e-6  # a cross-entropy of a sample that is sure may be computed as a little less than zero

NOT_FINITE = "its loss or gradient is not finite"


@dataclass(frozen=True)
class Size:
    """How large a device's loss and gradient are, and whether all that it brought is finite."""

    loss: float
    length: float
    finite: bool = True


@dataclass(frozen=True)
class Usual:
    """What a device is measured by besides the others of its round."""

    untrained: float = 0.0  # the loss of a model that has learnt nothing: ln C
    lengths: Sequence[float] = ()  # of the gradients that were accepted last
    cross_entropy: bool = False  # whether losses cannot be negative


def outliers(sizes: Mapping[int, Size], usual: Usual) -> dict[int, str]:
    """Return the outliers among devices that are compared with each other, and why each is one."""
    losses, lengths = finite(s.loss for s in sizes.values()), finite(s.length for s in sizes.values())
    accepted, found = median_of(finite(usual.lengths)), {}
    for device, size in sizes.items():
        why = impossible(size, usual, devices=len(sizes))
        if why is None and len(sizes) >= FEWEST:
            length = max(median_of(lengths, without=size.length), accepted)
            why = far(size, median_of(losses, without=size.loss), length, usual)
        if why is not None:
            found[device] = why
    return found


def reason(size: Size, others: Sequence[Size], usual: Usual, *, devices: int) -> str | None:
    """Say why a device, one of so many, is an outlier beside these others; None if it is none."""
    why = impossible(size, usual, devices=devices)
    if why is not None or devices < FEWEST:
        return why
    # What a loss of one's own is in an untrained model, only the others tell.
    loss = median_of(finite(other.loss for other in others))
    if not others and not usual.cross_entropy:
        loss = math.inf
    lengths = (finite(other.length for other in others), finite(usual.lengths))
    return far(size, loss, max(map(median_of, lengths)), usual)


def impossible(size: Size, usual: Usual, *, devices: int) -> str | None:
    """Say why a device's numbers cannot be, whatever the others' are."""
    if not (size.finite and math.isfinite(size.loss) and math.isfinite(size.length)):
        return NOT_FINITE
    if devices >= FEWEST and usual.cross_entropy and is_impossible(size.loss):
        return f"its loss is {size.loss:.3g}, and no cross-entropy is negative"
    return None


def far(size: Size, loss: float, length: float, usual: Usual) -> str | None:
    """Say why a device is far beyond a usual loss and length."""
    loss = max(loss, usual.untrained)
    if size.loss > FAR * loss:
        return f"its loss is {size.loss:.3g}, where {loss:.3g} is usual"
    # Where all others' gradients are zero there is nothing to measure by.
    if size.length > FAR * length > 0:
        return f"its gradient has length {size.length:.3g}, where {length:.3g} is usual"
    return None


def is_impossible(loss: float) -> bool:
    """Say whether a loss is below what a cross-entropy can be."""
    return loss < -ROUNDING


def finite(values: Iterable[float]) -> list[float]:
    """Return those values that are finite, in ascending order."""
    return sorted(value for value in values if math.isfinite(value))


def median_of(ordered: Sequence[float], without: float | None = None) -> float:
    """Return the median of ordered values, one of them left out if it is given; 0 if there is none."""
    count, skipped = len(ordered), len(ordered)
    if without is not None:  # not a list for each of a thousand devices
        count, skipped = count - 1, bisect_left(ordered, without)
    if count == 0:
        return 0.0
    low, high = (ordered[at + (at >= skipped)] for at in ((count - 1) // 2, count // 2))
    return (low + high) / 2
