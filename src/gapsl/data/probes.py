"""Pictures that everybody can draw: the same on every device, of nothing in particular.

Overlapping leaves of random shape, colour and stripe ("dead leaves") have the edges, scales and occlusions
of photographs without showing anything, so that what a client-side model makes of them says how it sees.
They come from a seed that all devices share, and so cost no communication.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.streams import torch_stream
from gapsl.data.samples import Source
from gapsl.data.transform import make_evaluation_transform

LEAVES = 48  # many small ones: two such pictures tell as much about a model as four with a few large ones
POOL = 512  # drawn once; a run's rounds take turns through them
AT_ONCE = 128


def dead_leaves(count: int, channels: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Draw so many pictures with values in [0, 1]: (count, channels, height, width)."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    down, right = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    pictures = uniform(count, channels, 1, 1).expand(-1, -1, height, width).clone()
    for _ in range(LEAVES):
        centre = uniform(2, count, 1, 1) * 2.4 - 1.2  # some reach in from outside
        radius = uniform(2, count, 1, 1).square() * 0.45 + 0.05
        turned = uniform(count, 1, 1) * math.pi
        x, y = right - centre[0], down - centre[1]
        along = (x * turned.cos() + y * turned.sin()) / radius[0]
        across = (y * turned.cos() - x * turned.sin()) / radius[1]
        ellipse = uniform(count, 1, 1) < 0.5
        inside = torch.where(
            ellipse, along.square() + across.square() < 1, (along.abs() < 1) & (across.abs() < 1)
        )
        waves = torch.sin(along * uniform(count, 1, 1) * 20 + across * uniform(count, 1, 1) * 20)
        stripes = uniform(count, 1, 1, 1) * 0.25 * waves[:, None]
        pictures = torch.where(inside[:, None], uniform(count, channels, 1, 1) + stripes, pictures)
    return (pictures + 0.04 * torch.randn(pictures.shape, generator=generator)).clamp(0, 1)


class Probes:
    """The probes of a run, as its models see them; round by round the same for every device."""

    def __init__(self, source: Source, *, seed: int, per_batch: int) -> None:
        shape = source.input_shape
        if len(shape) != 3 or shape[0] > 3:
            raise InputError(
                f"probes are pictures of up to 3 channels, but an input of {source.name} has shape "
                f"{tuple(shape)}; set probes = 0"
            )
        self.per_batch = per_batch
        generator = torch_stream(seed, "probes")
        drawn = [dead_leaves(AT_ONCE, *shape, generator) for _ in range(POOL // AT_ONCE)]
        self._pool = make_evaluation_transform(source)(torch.cat(drawn))

    def of_round(self, round: int, turn: int = 0) -> Tensor:
        """Return the probes of a round and turn."""
        first = (round + turn) * self.per_batch
        return self._pool[torch.arange(first, first + self.per_batch) % POOL]
