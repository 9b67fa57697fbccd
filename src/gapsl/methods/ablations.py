"""The ablations: GAPSL with one part taken out, fixed or replaced by chance, and one device alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from gapsl.alignment import Alignment, Leader, angles_to, identify_leader, keep_within, mean_of_rows
from gapsl.common.errors import InputError
from gapsl.common.streams import random_subset
from gapsl.device.exchange import Exchange, Outcome
from gapsl.methods.base import Parameters, RunInfo
from gapsl.methods.contribution import Contribution, losses_of
from gapsl.methods.gapsl import Gapsl, GapslParameters, everybody, selection_of
from gapsl.methods.psl import Psl
from gapsl.methods.server_model import ServerModel


class NonLgi(Gapsl):
    """GAPSL without the choice of who leads."""

    summary = "ablation: the leader is the mean of all gradients"

    def identify(self, round: int, gradients: Tensor) -> Leader:
        """Let everybody lead."""
        everyone = tuple(range(len(gradients)))
        found = super().identify(round, gradients)
        return replace(found, members=everyone, gradient=mean_of_rows(gradients, everyone))


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
        total = self.led(contributions, leader)
        if self.estimates:
            total = self.mean(gradients, leader.members)
        self.update(round, total, [contributions[i] for i in leader.members])
        replies = {c.device: self.reply(c.activation_gradient, c.device, ids) for c in contributions}
        selection = selection_of(leader, found, range(len(ids)), ids, weight=0.0)
        return Outcome(replies, losses_of(contributions), angles=leader.angles, selection=selection)


class RandGda(Gapsl):
    """GAPSL that keeps devices drawn by lot, whatever their angle; the rest count as excluded."""

    summary = "ablation: a random subset of the kept set's size replaces it"

    def select(self, round: int, gradients: Tensor, leader: Leader) -> Alignment:
        """Draw as many devices as GDA would keep."""
        found = super().select(round, gradients, leader)
        drawn = random_subset(len(gradients), len(found.kept), self.run.seed, "rand-gda", round=round)
        return replace(found, kept=drawn)


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


class SingleParameters(Parameters):
    """Which device trains."""

    device: int = Field(0, ge=0, description="the one device whose gradients count")


class Single(Psl):
    """One device's client-side model and the server's, trained on that device's gradients alone."""

    summary = "ablation: one device trains, the others' gradients are discarded (single.device)"
    section: ClassVar[str | None] = "single"
    parameters: ClassVar[type[Parameters]] = SingleParameters
    in_turn: ClassVar[bool] = True
    one_step: ClassVar[bool] = False  # there is nobody to compare it with
    sketches: ClassVar[bool] = False
    labels_at_device: ClassVar[bool] = False

    @property
    def chosen(self) -> int:
        """The device that trains."""
        assert isinstance(self.run.parameters, SingleParameters)
        return self.run.parameters.device

    def __init__(self, server: ServerModel, run: RunInfo) -> None:
        super().__init__(server, run)
        if self.chosen not in run.devices:
            raise InputError(
                f"single.device is {self.chosen}, but devices are numbered 0 to {max(run.devices)}"
            )

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        """Ask the one device, whoever else is there."""
        yield Exchange((self.chosen,))

    def shared_client_model(self) -> int:
        """The one model there is."""
        return self.chosen
