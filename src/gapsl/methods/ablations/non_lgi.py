"""Non-LGI: the leader is the mean of all devices' gradients."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gapsl.alignment import Leader, mean_of_rows
from gapsl.methods.gapsl import Gapsl


class NonLgi(Gapsl):
    """GAPSL without the choice of who leads."""

    summary = "ablation: the leader is the mean of all gradients"

    def identify(self, round: int, gradients: Tensor) -> Leader:
        """Let everybody lead."""
        everyone = tuple(range(len(gradients)))
        found = super().identify(round, gradients)
        return replace(found, members=everyone, gradient=mean_of_rows(gradients, everyone))
