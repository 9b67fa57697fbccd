"""Vanilla SL: devices train one after another and hand the client-side model on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from gapsl.device.exchange import Exchange, Outcome, Reply, Upload
from gapsl.methods.base import Parameters, Strategy, step_alone
from gapsl.methods.contribution import nothing


class VanillaParameters(Parameters):
    """Vanilla SL's settings."""

    turn: Literal["pass", "batch"] = Field(
        "pass", description="a device trains for one pass over its data, or one mini-batch, then hands over"
    )


class Vanilla(Strategy):
    """The original split learning. A round is as many mini-batches as PSL's, whoever makes them."""

    summary = "vanilla split learning: devices take turns and hand the client-side model on"
    section: ClassVar[str | None] = "vanilla"
    parameters: ClassVar[type[Parameters]] = VanillaParameters
    in_turn: ClassVar[bool] = True
    moves_client_models: ClassVar[bool] = True
    holder: int | None = None  # who has the client-side model
    left: int = 0  # mini-batches left in its turn

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        """Let the device whose turn it is train, and move on when its turn is over or it is absent."""
        for turn in range(len(present)):
            move = None
            if self.left == 0 or self.holder not in present:
                after = following(self.holder, present)
                if self.holder is not None and self.holder != after:
                    move = (self.holder, after)
                self.holder, self.left = after, self._turn_of(after)
            self.left -= 1
            yield Exchange((self.shared_client_model(),), turn, hand_over=move)

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Take one server step for the one device whose turn it is."""
        (upload,) = uploads
        contribution = self.server.first_order(upload)
        why = self.outlier(contribution, (), devices=1)
        why = why or step_alone(self.server, round, contribution)
        if why is not None:
            return Outcome({upload.device: nothing(upload)}, {}, {upload.device: why})
        return Outcome(
            {upload.device: Reply(contribution.activation_gradient)}, {upload.device: contribution.loss}
        )

    def _turn_of(self, device: int) -> int:
        assert isinstance(self.run.parameters, VanillaParameters)
        whole = self.run.parameters.turn == "pass"
        return self.run.devices[device].batches_per_pass if whole else 1

    def shared_client_model(self) -> int:
        """The one client-side model, wherever it is."""
        return self.holder if self.holder is not None else min(self.run.devices)

    def state(self) -> dict[str, Any]:
        """Whose turn it is and what is left of it."""
        return {**super().state(), "holder": self.holder, "left": self.left}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.holder, self.left = state["holder"], int(state["left"])


def following(holder: int | None, present: Sequence[int]) -> int:
    """Return the device after this one among those present, going round."""
    later = [device for device in present if holder is None or device > holder]
    return min(later or present)
