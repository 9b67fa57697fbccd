"""A trained model in parts, and in one piece: a plain module that knows its classes and its inputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.device.model_info import ModelInfo
from gapsl.models import GivenModel, Split, split
from gapsl.models.cut import behead


class ClientPart(NamedTuple):
    """What a device has: its client-side model and, where labels stay with it, the head."""

    model: nn.Module
    head: nn.Module | None
    number: int  # of the device; -1: of no one device


class SplitModel(nn.Module):
    """Client-side model and server-side model joined: `model(model.preprocess(images))` are the logits.

    Of several clients, it gives the logarithm of their mean probabilities: the `ensemble` of evaluations.
    """

    def __init__(self, info: ModelInfo, clients: Sequence[ClientPart], server: nn.Module) -> None:
        super().__init__()
        self.info, self.classes = info, info.classes
        self.clients = nn.ModuleList(part.model for part in clients)
        self.server = server
        self.heads = nn.ModuleList(part.head for part in clients if part.head is not None)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of prepared inputs."""
        found = [self._logits(index, inputs) for index in range(len(self.clients))]
        if len(found) == 1:
            return found[0]
        each = torch.stack([logits.double().log_softmax(dim=1) for logits in found])
        return (each.logsumexp(dim=0) - math.log(len(found))).to(found[0].dtype)

    def _logits(self, index: int, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.server(self.clients[index](inputs))
        return self.heads[index](outputs) if len(self.heads) else outputs

    def preprocess(self, inputs: Tensor | NDArray[Any]) -> Tensor:
        """Return raw inputs, one or a batch of them, as the model takes them."""
        return self.info.preprocess(inputs)

    @torch.no_grad()
    def predict(self, inputs: Tensor | NDArray[Any]) -> Tensor:
        """Return the probabilities of the classes, of raw inputs."""
        outputs: Tensor = self(self.preprocess(inputs))
        return outputs.softmax(dim=1)


@dataclass(frozen=True)
class TrainedParts:
    """What a place has of a trained model, and where that is from."""

    info: ModelInfo
    clients: tuple[ClientPart, ...]  # none: the server's part alone
    server: nn.Module | None  # None: a device's part alone
    method: str = ""  # not known to a device
    run: str = ""
    round: int = 0
    client: str = ""  # whose: a device's number, merged or ensemble
    accuracy: float | None = None  # on the test set, as the run measured it

    def joined(self) -> SplitModel:
        """Return the whole model, which needs both parts."""
        if self.server is None or not self.clients:
            has, lacks = (
                ("server-side", "client-side") if self.server is not None else ("client-side", "server-side")
            )
            raise InputError(
                f"there is the {has} model alone; put both together with: gapsl export --join SERVER_PART "
                f"DEVICE_PART --out FOLDER, or leave the {lacks} model where it is (gapsl serve-model)"
            )
        return SplitModel(self.info, self.clients, self.server).eval()

    def joined_to(self, device: TrainedParts) -> TrainedParts:
        """Return the server's part with a device's, or say why they do not belong together."""
        if self.server is None or not device.clients:
            raise InputError(
                "--join takes a server's part and a device's part, in this order; swap or change them"
            )
        wrong = self.info.differences(device.info)
        if wrong:
            raise InputError(
                f"the two parts are not of one model: {'; '.join(wrong)} (server and device); take parts of "
                "one run"
            )
        if self.run and device.run and self.run != device.run:
            raise InputError(
                f"the server's part is of run {self.run}, the device's of run {device.run}: they were not "
                "trained together; take parts of one run"
            )
        return replace(
            device,
            server=self.server,
            method=self.method or device.method,
            run=self.run or device.run,
            accuracy=device.accuracy if device.round == self.round else None,
        )


def blank_parts(
    info: ModelInfo, given: GivenModel | None = None
) -> tuple[nn.Module, nn.Module, nn.Module | None]:
    """Return client-side model, server-side model and head to load weights into; `given`: one's own model."""
    if not info.own_model:
        parts = info.build()
    elif given is None:
        raise InputError(
            f"the model was given from Python ({info.own_model}), and its code is not stored with the run; "
            f"give it again: gapsl.load(..., model={info.own_model}(...)), gapsl.export(..., model=...)"
        )
    else:
        parts = info.finished(own_parts(info, given))
    if info.labels == "server":
        return parts.device, parts.server, None
    return parts.device, *behead(parts.server)


def own_parts(info: ModelInfo, given: GivenModel) -> Split:
    """Return the parts of a model that was given from Python."""
    found = copy.deepcopy(given)
    if isinstance(found, Split):
        return found
    if info.cut is None:
        raise InputError("the run was given two modules; give them again as gapsl.Split(device, server)")
    sample = torch.randn(2, *info.input_shape, generator=torch.Generator().manual_seed(0))
    return split(found, info.cut, sample)


def filled(model: nn.Module, weights: Mapping[str, Tensor], what: str) -> nn.Module:
    """Return a copy of a model with these weights, or say that they are another model's."""
    copied = copy.deepcopy(model)
    try:
        copied.load_state_dict(dict(weights), strict=True)
    except RuntimeError as error:
        raise InputError(
            f"{what} does not fit the model: {' '.join(str(error).split())[:300]}; it is of another model or "
            "cut"
        ) from None
    return copied.eval()
