"""Feature shift: devices that see the same world through different sensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gapsl.common.errors import InputError
from gapsl.common.registry import Registry
from gapsl.common.streams import numpy_stream


@dataclass(frozen=True)
class Shift:
    """What one device does to its training inputs, once they are scaled to [0, 1].

    The values are: noise, the standard deviation; rotation, the angle in degrees, counter-clockwise;
    colour, gains of three channels and then their offsets (a grey image uses the first of each).
    """

    kind: str
    values: tuple[float, ...]


# strength, devices, seed -> the values of each device
Spread = Callable[[float, int, int], list[tuple[float, ...]]]

SHIFTS: Registry[Spread] = Registry("shift")


def spread_noise(strength: float, devices: int, seed: int) -> list[tuple[float, ...]]:
    """`+noise:STRENGTH`: Gaussian noise, its std from 0 at the first device to STRENGTH at the last."""
    return [(float(std),) for std in np.linspace(0, strength, devices)]


def spread_rotation(strength: float, devices: int, seed: int) -> list[tuple[float, ...]]:
    """`+rotation:DEGREES`: angles spread evenly over ±DEGREES; a device alone is not turned."""
    if strength > 180:
        raise InputError(f"rotation:{strength:g}: more than half a turn; choose up to 180 degrees")
    angles = np.linspace(-strength, strength, devices) if devices > 1 else [0.0]
    return [(float(angle),) for angle in angles]


def spread_colour(strength: float, devices: int, seed: int) -> list[tuple[float, ...]]:
    """`+colour:STRENGTH`: per channel a gain in 1 ± STRENGTH and an offset in ± STRENGTH / 2."""
    if strength > 1:
        raise InputError(f"colour:{strength:g}: a gain could be negative; choose up to 1")
    values = []
    for device in range(devices):
        rng = numpy_stream(seed, "shift-colour", device)
        gains, offsets = 1 + strength * rng.uniform(-1, 1, 3), strength * rng.uniform(-0.5, 0.5, 3)
        values.append((*gains.tolist(), *offsets.tolist()))
    return values


SHIFTS.register("noise", spread_noise)
SHIFTS.register("rotation", spread_rotation)
SHIFTS.register("colour", spread_colour, aliases=["color"])


def make_shifts(spec: str, *, devices: int, seed: int) -> tuple[Shift, ...]:
    """Return every device's shift for a spec such as `noise:0.3`."""
    name, _, argument = spec.partition(":")
    kind = SHIFTS.canonical(name)
    try:
        strength = float(argument)
    except ValueError:
        strength = math.nan
    if not (math.isfinite(strength) and strength >= 0):
        raise InputError(f"+{spec}: the strength must be a number from 0 up, for example +{kind}:0.3")
    return tuple(Shift(kind, values) for values in SHIFTS[kind](strength, devices, seed))
