"""One device is not the fleet: who is left out of a round because its numbers cannot be, or are far off.

A device is an outlier if something of it is not finite. Where three or more devices take part, it is one as
well if its loss or the length of its gradient is a hundred times what is usual, or if it says that a
cross-entropy is negative. Usual is what the others' median is, and no less than what an untrained model has
(the loss) or than the running median of the lengths that were accepted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

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
    found: dict[int, str] = {}
    for device, size in sizes.items():
        others = [other for one, other in sizes.items() if one != device]
        why = reason(size, others, usual, devices=len(sizes))
        if why is not None:
            found[device] = why
    return found


def reason(size: Size, others: Iterable[Size], usual: Usual, *, devices: int) -> str | None:
    """Say why a device, one of so many, is an outlier beside these others; None if it is none."""
    if not (size.finite and math.isfinite(size.loss) and math.isfinite(size.length)):
        return NOT_FINITE
    if devices < FEWEST:
        return None
    if usual.cross_entropy and is_impossible(size.loss):
        return f"its loss is {size.loss:.3g}, and no cross-entropy is negative"
    known = list(others)
    loss = max(middle(other.loss for other in known), usual.untrained)
    # What a loss of one's own is in an untrained model, only the others tell.
    if size.loss > FAR * loss and (known or usual.cross_entropy):
        return f"its loss is {size.loss:.3g}, where {loss:.3g} is usual"
    length = max(middle(other.length for other in known), middle(usual.lengths))
    # Where all others' gradients are zero there is nothing to measure by.
    if size.length > FAR * length > 0:
        return f"its gradient has length {size.length:.3g}, where {length:.3g} is usual"
    return None


def is_impossible(loss: float) -> bool:
    """Say whether a loss is below what a cross-entropy can be."""
    return loss < -ROUNDING


def middle(values: Iterable[float]) -> float:
    """Return the median of those values that are finite, 0 if there is none."""
    return median([value for value in values if math.isfinite(value)] or [0.0])
