"""An order of samples in which every stretch has nearly the label proportions of the whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def interleave(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random order of all positions with the classes spread evenly along it.

    The r-th sample of a class of n (in a random order) stands at (r + u) / n of the way, u one random
    number per class. So a stretch of a fraction f holds f·n of each class, give or take one or two:
    cut anywhere, all pieces are stratified.
    """
    count = len(labels)
    shuffled = rng.permutation(count)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
    rank = np.arange(count) - np.repeat(starts, sizes)
    offset = np.repeat(rng.random(len(sizes)), sizes)
    place = (rank + offset) / np.repeat(sizes, sizes)
    return np.asarray(by_class[np.argsort(place, kind="stable")], dtype=np.int64)
