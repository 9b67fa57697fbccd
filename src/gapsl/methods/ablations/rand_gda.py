"""Rand-GDA: a random subset of the kept set's size is kept instead."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gapsl.alignment import Alignment, Leader
from gapsl.common.streams import random_subset
from gapsl.methods.gapsl import Gapsl


class RandGda(Gapsl):
    """GAPSL that keeps devices drawn by lot, whatever their angle; the rest count as excluded."""

    summary = "ablation: a random subset of the kept set's size replaces it"

    def select(self, round: int, gradients: Tensor, leader: Leader) -> Alignment:
        """Draw as many devices as GDA would keep."""
        found = super().select(round, gradients, leader)
        drawn = random_subset(len(gradients), len(found.kept), self.run.seed, "rand-gda", round=round)
        return replace(found, kept=drawn)
