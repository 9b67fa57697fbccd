"""A method of your own: one class, one registration call.

PSL in which no device shouts: gradients longer than the median are scaled down to it before they are
averaged. Run it with `python examples/own_method.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

import gapsl
from gapsl.methods import Contribution, Outcome


class LevelPsl(gapsl.Parallel):
    """Step on the mean of gradients cut to the median length, and return each device its own."""

    summary = "PSL with gradients cut to the median length"

    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Row i of `gradients` (S, d) belongs to contribution i."""
        lengths = gradients.norm(dim=1)
        gradients *= (lengths.median() / lengths).clamp(max=1.0)[:, None]
        everybody = [c.device for c in contributions]
        self.update(round, self.reduce(gradients, contributions), contributions)
        replies = {c.device: self.reply(c.activation_gradient, c.device, everybody) for c in contributions}
        return Outcome(replies, losses={c.device: c.loss for c in contributions})


gapsl.register_method("level-psl", LevelPsl)

if __name__ == "__main__":
    fast = {"lr": 0.2}
    for method in ("psl", "level-psl"):
        result = gapsl.train(
            method=method, model="mlp", rounds=60, partition="dirichlet:0.5", device_optimizer=fast,
            server_optimizer=fast,
        )  # fmt: skip
        assert result is not None
        print(f"{method}: {100 * result.final.device_mean:.1f} %")
