"""Single: one device trains and the others are silent; what a lone device's gradient is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from gapsl.common.errors import InputError
from gapsl.device.exchange import Exchange
from gapsl.methods.base import Parameters, RunInfo
from gapsl.methods.psl import Psl
from gapsl.methods.server_model import ServerModel


class SingleParameters(Parameters):
    """Which device trains."""

    device: int = Field(0, ge=0, description="the one device whose gradients count")


class Single(Psl):
    """The model of one device's half and the server, trained on that device's gradients alone."""

    summary = "ablation: one device trains, the others' gradients are discarded (single.device)"
    section: ClassVar[str | None] = "single"
    parameters: ClassVar[type[Parameters]] = SingleParameters
    in_turn: ClassVar[bool] = True
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

    def shared_half(self) -> int:
        """The one model there is."""
        return self.chosen
