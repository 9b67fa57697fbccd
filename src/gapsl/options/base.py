"""What an option is: a method with something around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from gapsl.device.exchange import Exchange, Outcome, Upload
from gapsl.methods.base import Strategy
from gapsl.methods.contribution import Contribution, Halfway
from gapsl.methods.server_model import ServerModel
from gapsl.models.part import ModelPart


class Option(Strategy):
    """A strategy around another, which it leaves as it is: the training loop sees one strategy.

    An option overrides `step`: it sees the uploads before the method and the outcome after it, and may add to
    the outcome's `details`, which go into the round's record. What has to survive a restart it adds to
    `state`, under a name of its own.
    """

    def __init__(self, method: Strategy) -> None:
        super().__init__(method.server, method.run)
        self.method = method

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        return self.method.exchanges(round, present)

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        return self.method.step(round, exchange, uploads, measure=measure)

    def passes(self, device: int) -> ServerModel:
        return self.method.passes(device)

    def beside(self, upload: Upload, row: Tensor) -> Contribution | Halfway:
        return self.method.beside(upload, row)

    def passes_state(self) -> dict[str, Any]:
        return self.method.passes_state()

    def load_passes_state(self, state: Mapping[str, Any]) -> None:
        self.method.load_passes_state(state)

    def averaging(self, round: int) -> Mapping[int, float] | None:
        return self.method.averaging(round)

    def average(self, weights: Mapping[int, float]) -> None:
        self.method.average(weights)

    def shared_client_model(self) -> int | Mapping[int, float] | None:
        return self.method.shared_client_model()

    def server_model(self) -> nn.Module:
        return self.method.server_model()

    def parts(self) -> Mapping[str, ModelPart]:
        return self.method.parts()

    def state(self) -> dict[str, Any]:
        return self.method.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.method.load_state(state)
