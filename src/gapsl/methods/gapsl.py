"""GAPSL: find the devices that agree (LGI), keep those near them and pull them closer (GDA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from gapsl.alignment import Alignment, Leader, align, identify_leader
from gapsl.device.exchange import Outcome, Reply, Selection
from gapsl.methods.base import Parallel, Parameters
from gapsl.methods.contribution import Contribution, Penalty, Regulariser, losses_of, nothing
from gapsl.methods.sketched import SketchedServerModel


class GapslParameters(Parameters):
    """GAPSL's settings; K is a fraction of the devices of a round."""

    k_min: float = Field(0.2, gt=0, le=1, description="smallest fraction of devices in the leader")
    k_max: float = Field(0.8, gt=0, le=1, description="largest fraction of devices in the leader")
    eta: float = Field(
        0.5, allow_inf_nan=False, description="threshold = mean - eta * std of the angles; larger keeps fewer"
    )
    weight: float = Field(
        5e-4,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        alias="lambda",
        description="weight of the regulariser 1 - cos(angle to the leader)",
    )
    penalty: Penalty = Field(
        "exact", description="how the regulariser is differentiated; finite or none with labels = device"
    )
    exclusion: Literal["adaptive", "none"] = Field(
        "adaptive", description="leave out devices beyond the threshold, or keep everybody"
    )
    excluded: Literal["skip", "plain"] = Field(
        "skip", description="a device left out skips its step, or gets its own plain gradient"
    )

    @model_validator(mode="after")
    def _ordered(self) -> GapslParameters:
        if self.k_min > self.k_max:
            raise ValueError(f"k_min ({self.k_min:g}) must not be above k_max ({self.k_max:g})")
        return self


class Gapsl(Parallel):
    """Gradient-aligned PSL. The ablations override one of `identify`, `select` and `combine`."""

    summary = "gradient-aligned PSL: leader gradient identification and gradient direction alignment"
    section: ClassVar[str | None] = "gapsl"
    labels_at_device: ClassVar[bool] = True
    sketches: ClassVar[bool] = True
    counts_rounds: ClassVar[bool] = True  # the share of leaders grows until the last round
    parameters: ClassVar[type[Parameters]] = GapslParameters
    spread: tuple[float, float] | None = None  # running minimum and maximum of the dispersion

    @classmethod
    def differentiates_twice(cls, parameters: Parameters) -> bool:
        """The exact regulariser does."""
        return (
            isinstance(parameters, GapslParameters)
            and parameters.penalty == "exact"
            and parameters.weight > 0
        )

    @property
    def chosen(self) -> GapslParameters:
        """This run's parameters."""
        assert isinstance(self.run.parameters, GapslParameters)
        return self.run.parameters

    def identify(self, round: int, gradients: Tensor) -> Leader:
        """Find the leader (LGI)."""
        return identify_leader(
            gradients,
            round=round,
            total_rounds=self.run.total_rounds,
            k_min=self.chosen.k_min,
            k_max=self.chosen.k_max,
            spread=self.spread,
        )

    def select(self, round: int, gradients: Tensor, leader: Leader) -> Alignment:
        """Choose the devices in the round's loss (GDA's threshold)."""
        found = align(gradients, leader.gradient, eta=self.chosen.eta)
        return everybody(found) if self.chosen.exclusion == "none" else found

    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Step on the kept devices' regularised losses, and answer each with its derivative."""
        leader = self.identify(round, gradients)
        self.spread = leader.spread
        found = self.select(round, gradients, leader)
        total, returned = self._regularise(contributions, gradients, leader, found)
        kept, skipped = list(returned), [i for i in found.kept if i not in returned]
        if total is not None:
            self.update(round, total, [contributions[i] for i in kept])
        ids = [c.device for c in contributions]
        members = [ids[i] for i in kept]
        if self.chosen.excluded == "plain" and kept:
            plain = {i: c.activation_gradient for i, c in enumerate(contributions) if i not in skipped}
            returned = {**plain, **returned}
        replies: dict[int, Reply] = {
            c.device: self.reply(returned[i], c.device, members) if i in returned else nothing(c.upload)
            for i, c in enumerate(contributions)
        }
        return Outcome(
            replies,
            losses_of(contributions),
            {ids[i]: "the derivative of its regulariser is not finite" for i in skipped},
            leader.angles,
            selection_of(leader, found, kept, ids, self.chosen.weight),
        )

    def _regularise(
        self, contributions: Sequence[Contribution], gradients: Tensor, leader: Leader, found: Alignment
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """Return the round's gradient with the regulariser's derivative, and the activations' gradients.

        These are by index, of those in the loss alone: who is kept and whose derivative is finite. Where
        there is nobody, there is no gradient. The kept rows of `gradients` are changed in place.
        """
        how = Regulariser(self.chosen.penalty, self.chosen.weight)
        chosen, rows = [contributions[i] for i in found.kept], [gradients[i] for i in found.kept]
        if isinstance(self.server, SketchedServerModel):
            towards = self.led(contributions, leader) if how.changes else None
            total, answers = self.server.reduced(chosen, towards, how)
            return total, {i: one for i, one in zip(found.kept, answers, strict=True) if one is not None}
        answers = self.server.regularise(chosen, rows, leader.gradient, how)
        returned = {i: one for i, one in zip(found.kept, answers, strict=True) if one is not None}
        return self.reduce(gradients, contributions, list(returned)) if returned else None, returned

    def led(self, contributions: Sequence[Contribution], leader: Leader) -> Tensor:
        """Return the leader's gradient, whole."""
        if not isinstance(self.server, SketchedServerModel):
            return leader.gradient
        return self.server.mean([contributions[i] for i in leader.members])

    def state(self) -> dict[str, Any]:
        """The running range of the dispersion, and what every method has."""
        return {**super().state(), "spread": self.spread}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        spread = state["spread"]
        self.spread = None if spread is None else (float(spread[0]), float(spread[1]))


def everybody(found: Alignment) -> Alignment:
    """Keep every device, cap or no cap."""
    return replace(found, kept=tuple(range(len(found.angles))))


def selection_of(
    leader: Leader, found: Alignment, kept: Sequence[int], ids: Sequence[int], weight: float
) -> Selection:
    """Return what a round's record says about alignment; indices become device ids."""
    cosines = found.angles.cos()
    return Selection(
        leader=tuple(ids[i] for i in leader.members),
        kept=tuple(ids[i] for i in kept),
        scores=dict(zip(ids, leader.scores.tolist(), strict=True)),
        lead_angles=dict(zip(ids, found.angles.tolist(), strict=True)),
        dispersion=leader.dispersion,
        ratio=leader.ratio,
        threshold=found.threshold,
        penalty={ids[i]: weight * (1 - float(cosines[i])) for i in kept},
    )
