"""Fixed threshold: the same angle decides in every round who is kept."""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from gapsl.alignment import Alignment, Leader, angles_to, keep_within
from gapsl.methods.base import Parameters
from gapsl.methods.gapsl import Gapsl, GapslParameters, everybody


class FixedThresholdParameters(GapslParameters):
    """GAPSL's settings and the threshold."""

    threshold: float = Field(75.0, ge=0, le=180, description="largest angle to the leader, in degrees")


class FixedThreshold(Gapsl):
    """GAPSL without the adaptive threshold of Eq. (6)."""

    summary = "ablation: a fixed angle decides who is kept (gapsl.threshold, in degrees)"
    parameters: ClassVar[type[Parameters]] = FixedThresholdParameters

    def select(self, round: int, gradients: Tensor, leader: Leader) -> Alignment:
        """Keep the devices within the fixed angle."""
        assert isinstance(self.chosen, FixedThresholdParameters)
        found = keep_within(angles_to(gradients, leader.gradient), math.radians(self.chosen.threshold))
        return everybody(found) if self.chosen.exclusion == "none" else found
