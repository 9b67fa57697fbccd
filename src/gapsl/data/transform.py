"""From raw inputs to what a model sees: scale, shift, augment, normalise, in this order.

A feature shift makes devices see the same world through different sensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.registry import Registry
from gapsl.common.streams import numpy_stream, torch_stream
from gapsl.data.samples import Source


def to_float(inputs: Tensor) -> Tensor:
    """Return bytes scaled to [0, 1] as float32, single and double precision as they are."""
    if inputs.dtype == torch.uint8:
        return inputs.float().div_(255)
    return inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()


def normalise(inputs: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Subtract each channel's mean and divide by its std."""
    shape = (1, -1, *[1] * (inputs.dim() - 2))
    return (inputs - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)


def crop_flip(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by up to an eighth of its height, black coming in, and mirror every second one."""
    count, _, height, width = inputs.shape
    pad = height // 8
    padded = F.pad(inputs, (pad, pad, pad, pad))
    down, right = torch.randint(0, 2 * pad + 1, (2, count), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    # Every crop is a view of the padded images: choosing one per image copies whole rows of pixels.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(count), :, down, right]
    return torch.where(mirrored.view(-1, 1, 1, 1), cropped.flip(-1), cropped)


Augmentation = Callable[[Tensor, torch.Generator], Tensor]

AUGMENTATIONS: Registry[Augmentation] = Registry("augmentation")
AUGMENTATIONS.register("none", lambda inputs, generator: inputs)
AUGMENTATIONS.register("crop-flip", crop_flip)


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


def apply_shift(inputs: Tensor, shift: Shift, generator: torch.Generator) -> Tensor:
    """Return inputs in [0, 1] as this device's sensor gives them.

    Nothing is clipped to [0, 1], so that noise keeps the std it was given.
    """
    if shift.kind == "noise":
        return inputs + shift.values[0] * torch.randn(inputs.shape, generator=generator)
    if shift.kind == "rotation":
        return rotate(inputs, shift.values[0])
    channels = inputs.shape[1]
    if channels > 3:
        raise InputError(f"a colour shift is for up to 3 channels, these inputs have {channels}; use +noise")
    values = torch.tensor(shift.values, dtype=torch.float32)
    return inputs * values[:channels].view(1, -1, 1, 1) + values[3 : 3 + channels].view(1, -1, 1, 1)


def rotate(inputs: Tensor, degrees: float) -> Tensor:
    """Turn images counter-clockwise about their centre, black coming in at the corners."""
    height, width = inputs.shape[2:]
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    # affine_grid's coordinates run from -1 to 1 along both sides, so off a square they need the ratio.
    turn = torch.tensor([[[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]]])
    grid = F.affine_grid(turn, [1, 1, height, width], align_corners=False)
    return F.grid_sample(inputs, grid.expand(len(inputs), -1, -1, -1), align_corners=False)


@dataclass(frozen=True)
class TrainingTransform:
    """One device's way from raw inputs to a training batch; all randomness from named streams."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: str
    shift: Shift | None

    def __call__(self, inputs: Tensor, seed: int, device: int, round: int, turn: int = 0) -> Tensor:
        """Return the batch of this device in this round and turn."""
        batch = to_float(inputs)
        if self.shift is not None:
            batch = apply_shift(batch, self.shift, torch_stream(seed, "shift-noise", device, round, turn))
        batch = AUGMENTATIONS[self.augment](batch, torch_stream(seed, "augment", device, round, turn))
        return normalise(batch, self.mean, self.std)


def make_transform(
    source: Source, augment: str | None = None, shift: Shift | None = None
) -> TrainingTransform:
    """Return a device's training transform; `augment` None stands for the source's default."""
    chosen = AUGMENTATIONS.canonical(source.augment if augment is None else augment)
    if len(source.input_shape) != 3 and (chosen != "none" or shift is not None):
        raise InputError(
            f"{source.name}: one input has shape {source.input_shape}; augmentation and shifts are for "
            "images (channels, height, width): set augment = none and leave out the +shift"
        )
    return TrainingTransform(source.mean, source.std, chosen, shift)


def make_evaluation_transform(source: Source) -> Callable[[Tensor], Tensor]:
    """Return the way from raw inputs to a test batch: no shift, no augmentation, nothing random."""
    return lambda inputs: normalise(to_float(inputs), source.mean, source.std)
