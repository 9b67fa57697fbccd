"""Rand-LGI: the leader is the mean of a random subset of the size LGI would take."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gapsl.alignment import Leader, mean_of_rows
from gapsl.common.streams import random_subset
from gapsl.methods.gapsl import Gapsl


class RandLgi(Gapsl):
    """GAPSL with leaders drawn by lot."""

    summary = "ablation: the leader is the mean of a random subset of the same size"

    def identify(self, round: int, gradients: Tensor) -> Leader:
        """Draw as many leaders as LGI would choose."""
        found = super().identify(round, gradients)
        # As with LGI, a zero gradient leads only where all are zero.
        able = [i for i, row in enumerate(gradients) if bool(row.any())] or list(range(len(gradients)))
        drawn = random_subset(len(able), len(found.members), self.run.seed, "rand-lgi", round=round)
        members = tuple(able[i] for i in drawn)
        return replace(found, members=members, gradient=mean_of_rows(gradients, members))
