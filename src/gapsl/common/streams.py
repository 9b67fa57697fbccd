"""Random streams named by what they are for, so that no draw depends on who drew before.

Every random choice of a run (initial weights, order of samples, augmentation, dropout, participation)
comes from a stream of its own, named by (seed, purpose, device, round, turn). Nothing has to be stored
to resume, and it makes no difference in which process or in which order the devices run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def stream_seed(seed: int, purpose: str, device: int = -1, round: int = 0, turn: int = 0) -> int:
    """Return the 63-bit seed of the stream with this name."""
    name = f"{seed}/{purpose}/{device}/{round}/{turn}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1


def numpy_stream(seed: int, purpose: str, device: int = -1, round: int = 0) -> np.random.Generator:
    """Return a fresh numpy generator for the stream with this name."""
    return np.random.default_rng(stream_seed(seed, purpose, device, round, 0))


def torch_stream(seed: int, purpose: str, device: int = -1, round: int = 0, turn: int = 0) -> torch.Generator:
    """Return a fresh CPU torch generator for the stream with this name."""
    return torch.Generator().manual_seed(stream_seed(seed, purpose, device, round, turn))


@contextmanager
def global_stream(seed: int, purpose: str, device: int = -1, round: int = 0, turn: int = 0) -> Iterator[None]:
    """Make torch's global generators this stream inside the block, and put them back after it.

    For what draws from the global generator and takes no other: initialisers and dropout.
    """
    named = stream_seed(seed, purpose, device, round, turn)
    if torch.accelerator.is_available():
        with torch.random.fork_rng(device_type=str(torch.accelerator.current_accelerator())):
            torch.manual_seed(named)
            yield
        return
    # The same for the CPU alone; torch.manual_seed would ask for accelerators that are not there, slowly.
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(named)
    try:
        yield
    finally:
        generator.set_state(before)


def random_subset(count: int, size: int, seed: int, purpose: str, *, round: int) -> tuple[int, ...]:
    """Draw `size` of `count` indices without repeats, in ascending order, from the named stream."""
    drawn = numpy_stream(seed, purpose, round=round).choice(count, size=size, replace=False)
    return tuple(sorted(int(i) for i in drawn))
