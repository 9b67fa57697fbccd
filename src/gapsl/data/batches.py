"""One device's mini-batches: always full, drawn across the ends of its local epochs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.streams import global_stream, numpy_stream
from gapsl.data.samples import Samples

# raw inputs, seed, device, round, turn -> what the model sees
BatchTransform = Callable[[Tensor, int, int, int, int], Tensor]


class Batches:
    """The endless sequence of a device's samples, cut into batches of exactly `batch_size`.

    The sequence is one permutation of the device's indices after another, permutation e from the stream
    (seed, "order", device, e). It depends on nothing else, so `drawn`, the number of batches drawn so
    far, is all the state there is: set it to resume.
    """

    def __init__(
        self,
        samples: Samples,
        indices: NDArray[np.int64],
        *,
        seed: int,
        device: int,
        batch_size: int,
        transform: BatchTransform,
    ) -> None:
        if len(indices) == 0:
            raise InputError(f"device {device} has no samples; use fewer devices or another partition")
        if batch_size < 1:
            raise InputError(f"batch_size = {batch_size}; it must be at least 1")
        self.samples = samples
        self.indices = np.asarray(indices, dtype=np.int64)
        self.seed = seed
        self.device = device
        self.batch_size = batch_size
        self.transform = transform
        self.drawn = 0
        self._cached: tuple[int, NDArray[np.int64]] = (-1, self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def batches_per_pass(self) -> int:
        """How many batches it takes to see every sample at least once."""
        return -(-len(self.indices) // self.batch_size)

    def draw(self, round: int, turn: int = 0) -> tuple[Tensor, Tensor]:
        """Return the next batch: inputs as the transform leaves them, and labels."""
        chosen = torch.from_numpy(self.indices_of(self.drawn))
        self.drawn += 1
        # A dataset of the user's may draw random numbers itself: from a stream of ours, too.
        with global_stream(self.seed, "dataset", self.device, round, turn):
            raw = self.samples.read(chosen)
        inputs = self.transform(raw, self.seed, self.device, round, turn)
        return inputs, self.samples.labels[chosen]

    def indices_of(self, number: int) -> NDArray[np.int64]:
        """Return the sample indices of batch `number`, counted from 0."""
        position, end = number * self.batch_size, (number + 1) * self.batch_size
        pieces = []
        while position < end:
            epoch, offset = divmod(position, len(self.indices))
            piece = self._order(epoch)[offset : offset + end - position]
            pieces.append(piece)
            position += len(piece)
        return np.concatenate(pieces)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if self._cached[0] != epoch:
            rng = numpy_stream(self.seed, "order", self.device, epoch)
            self._cached = (epoch, rng.permutation(self.indices))
        return self._cached[1]
