"""Non-GDA: the server steps on the leader gradient alone, devices get their plain gradient."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gapsl.device.exchange import Outcome
from gapsl.methods.base import Parameters, losses_of
from gapsl.methods.gapsl import Gapsl, describe, everybody
from gapsl.methods.server_model import Contribution


class NonGda(Gapsl):
    """GAPSL without alignment: nobody is excluded and nothing regularised."""

    summary = "ablation: the server steps on the leader gradient, devices get their plain gradients"

    @classmethod
    def differentiates_twice(cls, parameters: Parameters) -> bool:
        """Nothing is regularised."""
        return False

    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Step on the leader's gradient."""
        leader = self.identify(round, gradients)
        self.spread = leader.spread
        found = everybody(self.select(round, gradients, leader))
        ids = [c.device for c in contributions]
        self.server.half.step(round, leader.gradient)
        replies = {c.device: self.reply(c.activation_gradient, c.device, ids) for c in contributions}
        details = describe(leader, found, range(len(ids)), ids, weight=0.0)
        return Outcome(replies, losses_of(contributions), angles=leader.angles, details=details)
