"""Rand-LGI: the leader is the mean of a random subset of the size LGI would take."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gapsl.alignment import Leader, mean_of_rows
from gapsl.strategies.gapsl import Gapsl
from gapsl.streams import random_subset


class RandLgi(Gapsl):
    """GAPSL with leaders drawn by lot."""

    summary = "ablation: the leader is the mean of a random subset of the same size"

    def identify(self, round: int, gradients: Tensor) -> Leader:
        """Draw as many leaders as LGI would choose."""
        found = super().identify(round, gradients)
        drawn = random_subset(len(gradients), len(found.members), self.setting.seed, "rand-lgi", round=round)
        return replace(found, members=drawn, gradient=mean_of_rows(gradients, drawn))
