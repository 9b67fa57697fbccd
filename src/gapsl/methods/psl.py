"""PSL: one server-side model for all, a client-side model for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from gapsl.alignment import pairwise_angles
from gapsl.device.exchange import Outcome
from gapsl.methods.base import Parallel
from gapsl.methods.contribution import Contribution, losses_of


class Psl(Parallel):
    """Parallel split learning: the devices' losses are reduced to one, and everybody follows it."""

    summary = "parallel split learning: one server-side model, a client-side model per device"
    labels_at_device: ClassVar[bool] = True
    sketches: ClassVar[bool] = True

    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Step on the reduced gradient and return each device its own."""
        everybody = [c.device for c in contributions]
        angles = pairwise_angles(gradients) if self.measures else None
        self.update(round, self.reduce(gradients, contributions), contributions)
        replies = {c.device: self.reply(c.activation_gradient, c.device, everybody) for c in contributions}
        return Outcome(replies, losses_of(contributions), angles=angles)
