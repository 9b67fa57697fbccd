"""SFL v1: a server-side copy per device, and a parameter server that averages client-side models."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from gapsl.alignment import pairwise_angles
from gapsl.device.exchange import Exchange, Outcome, Reply, Upload
from gapsl.methods.base import Parameters, RunInfo, Strategy, step_alone
from gapsl.methods.contribution import Contribution, Measured, nothing
from gapsl.methods.server_model import ServerModel
from gapsl.models.part import ModelPart, average, weights_of


class SflParameters(Parameters):
    """SFL's settings."""

    interval: int | None = Field(None, ge=1, description="rounds between two averagings; unset: one epoch")
    weights: Literal["samples", "uniform"] = Field(
        "samples", description="how devices count in the average: by their amount of data, or equally"
    )


class ClientAveraging(Strategy):
    """What both versions of SFL share: client-side models averaged by a separate parameter server."""

    section: ClassVar[str | None] = "sfl"
    parameters: ClassVar[type[Parameters]] = SflParameters
    moves_client_models: ClassVar[bool] = True
    counts_rounds: ClassVar[bool] = True  # the last round averages

    def __init__(self, server: ServerModel, run: RunInfo) -> None:
        super().__init__(server, run)
        self.active: set[int] = set()  # the devices that trained since the last averaging

    @property
    def chosen(self) -> SflParameters:
        """This run's parameters."""
        assert isinstance(self.run.parameters, SflParameters)
        return self.run.parameters

    def weights(self) -> dict[int, float]:
        """Return how much each device that trained counts, in ascending id; everybody if none did."""
        devices = sorted(self.active) or sorted(self.run.devices)
        uniform = self.chosen.weights == "uniform"
        return {d: 1.0 if uniform else float(self.run.devices[d].samples) for d in devices}

    def averaging(self, round: int) -> Mapping[int, float] | None:
        """Average at the end of every epoch, or every `interval` rounds, and at the end of training."""
        due = round % (self.chosen.interval or self.run.rounds_per_epoch) == 0
        if not (due or round == self.run.total_rounds) or not self.active:
            return None
        return self.weights()

    def average(self, weights: Mapping[int, float]) -> None:
        """Begin to note anew who trains."""
        self.active.clear()

    def shared_client_model(self) -> Mapping[int, float]:
        """The model of SFL is the average, also between two averagings."""
        return self.weights()

    def train_once(self, passes: ServerModel, round: int, contribution: Contribution) -> str | None:
        """Take a server step on one device's gradient; where it cannot be taken, say why."""
        why = step_alone(passes, round, contribution)
        if why is None:
            self.active.add(contribution.device)
        return why

    def state(self) -> dict[str, Any]:
        """Who trained since the last averaging, and what every method has."""
        return {**super().state(), "active": sorted(self.active)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.active = {int(d) for d in state["active"]}


class Answers:
    """The outcome of an exchange in the making: a gradient at the cut for each that trained on its own."""

    def __init__(self) -> None:
        self.replies: dict[int, Reply] = {}
        self.losses: dict[int, float] = {}
        self.skipped: dict[int, str] = {}

    def add(self, contribution: Contribution, why: str | None) -> None:
        """Answer a device, which is skipped if there is a reason why."""
        device = contribution.device
        if why is None:
            self.replies[device] = Reply(contribution.activation_gradient)
            self.losses[device] = contribution.loss
        else:
            self.replies[device] = nothing(contribution.upload)
            self.skipped[device] = why

    def outcome(self, measured: Measured | None) -> Outcome:
        """Return the outcome, with the angles between those that trained if they were measured."""
        losses = dict(sorted(self.losses.items()))
        angles = measured.among(losses) if measured is not None else None
        return Outcome(self.replies, losses, self.skipped, angles)


class Sfl(ClientAveraging):
    """Split federated learning, version 1."""

    summary = "split federated learning v1: a server-side copy per device; all averaged every epoch"
    side_by_side: ClassVar[bool] = True

    def __init__(self, server: ServerModel, run: RunInfo) -> None:
        super().__init__(server, run)
        self.copies = {device: server.copy() for device in sorted(run.devices)}

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Train every device's copy on its own upload."""
        common = not self.active  # right after an averaging all copies are the same
        measured: Measured | None = None
        if measure and not common:
            uploads = list(uploads)
            self.server.part.model.load_state_dict(self._merged(self.weights()))
            measured = self.measure_angles(uploads)
        rows = self.server.rows(len(exchange.devices))
        arrived: dict[int, Contribution] = {}
        for upload in uploads:
            row = rows[exchange.devices.index(upload.device)]
            arrived[upload.device] = self.copies[upload.device].first_order(upload, out=row)
        found = [arrived[device] for device in sorted(arrived)]
        answers = Answers()
        skipped = self.outliers(found)
        for c in found:
            answers.add(c, skipped.get(c.device) or self.train_once(self.copies[c.device], round, c))
        if common and answers.losses:
            measured = Measured(exchange.devices, pairwise_angles(rows))
        return answers.outcome(measured)

    def passes(self, device: int) -> ServerModel:
        return self.copies[device]

    def average(self, weights: Mapping[int, float]) -> None:
        """Average the server's copies together with the client-side models."""
        merged = self._merged(weights)
        for passes in self.copies.values():
            passes.part.model.load_state_dict(merged)
        super().average(weights)

    def server_model(self) -> nn.Module:
        """Return the average of the copies."""
        model = copy.deepcopy(self.server.part.model)
        model.load_state_dict(self._merged(self.weights()))
        return model

    def parts(self) -> Mapping[str, ModelPart]:
        return {f"server-{device:04d}": passes.part for device, passes in self.copies.items()}

    def _merged(self, weights: Mapping[int, float]) -> dict[str, Tensor]:
        models = [weights_of(self.copies[device].part.model) for device in weights]
        return average(models, list(weights.values()))
