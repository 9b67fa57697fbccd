"""Fixed ratio: the same share of devices leads in every round."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from gapsl.alignment import Leader, identify_leader
from gapsl.methods.base import Parameters
from gapsl.methods.gapsl import Gapsl, GapslParameters


class FixedRatioParameters(GapslParameters):
    """GAPSL's settings and the ratio."""

    ratio: float = Field(0.5, gt=0, le=1, description="fraction of devices in the leader, every round")


class FixedRatio(Gapsl):
    """GAPSL without the adaptive selection ratio of Eq. (2)."""

    summary = "ablation: a fixed fraction of devices leads (gapsl.ratio)"
    parameters: ClassVar[type[Parameters]] = FixedRatioParameters

    def identify(self, round: int, gradients: Tensor) -> Leader:
        """Find the leader with K_min = K_max = the ratio."""
        assert isinstance(self.chosen, FixedRatioParameters)
        ratio, total = self.chosen.ratio, self.run.total_rounds
        return identify_leader(
            gradients, round=round, total_rounds=total, k_min=ratio, k_max=ratio, spread=self.spread
        )
