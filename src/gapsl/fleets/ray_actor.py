"""A worker in a Ray actor, and weights as the arrays that go to it and come back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import gapsl
from gapsl.fleets.memory import Answered, Computed, Memory, Summed, writable
from gapsl.fleets.worker import Worker
from gapsl.methods.base import Strategy
from gapsl.methods.contribution import Regulariser

Array = np.ndarray[Any, Any]
Rows = Mapping[str, Array]  # of one device, by the part of the memory they belong to
Sums = tuple[Array, Mapping[int, Array]]  # the branches of a sum, and the activations' gradients by device


class Actor:
    """A worker at home in a Ray actor, whose memory is its own: what others need comes with the answers."""

    def __init__(self, packed: bytes, versions: Mapping[str, str]) -> None:
        self.different = {name: found for name, found in versions_here().items() if found != versions[name]}
        if not self.different:
            from ray import cloudpickle

            self.worker: Worker = cloudpickle.loads(packed)
            self.worker.begin()
            devices = self.worker.devices
            server, places = self.worker.strategy.server, len(devices)
            self.memory = Memory.laid_out(server, devices, places, 1, ordinary_memory)

    def check(self) -> tuple[dict[str, str], int]:
        """Return the versions that differ from the driver's, and the process that this is."""
        return self.different, os.getpid()

    def collect(self, weights: Sequence[Array], *job: Any) -> list[tuple[Computed, Rows]]:
        """Run devices to the cut, and the server's passes for them."""
        fill(self._server_models(), weights)
        return [(said, self._rows(said)) for said in self.worker.collect(self.memory, *job)]

    def backwards(self, *job: Any) -> list[tuple[Computed, Rows]]:
        """Run passes back that have waited halfway."""
        return [(said, self._rows(said)) for said in self.worker.backwards(self.memory, *job)]

    def _rows(self, said: Computed) -> Rows:
        found = {"labels": self.memory.labels[said.place], "uploads": self.memory.uploads[said.place]}
        if said.returned is not None:
            found |= {"rows": self.memory.rows[said.place], "replies": self.memory.replies[said.place]}
        return {name: row.numpy() for name, row in found.items()}

    def regularise(
        self, leader: Array, how: Regulariser, asked: Sequence[tuple[int, int, bool]]
    ) -> list[tuple[tuple[int, bool, bool], Rows]]:
        """Add the derivatives of devices' regularisers to their gradients."""
        copy_to(self.memory.leader, leader)
        done = list(self.worker.regularise(self.memory, how, asked))
        return [
            (said, {"rows": self.memory.rows[place].numpy(), "replies": self.memory.replies[place].numpy()})
            for said, (_, place, _) in zip(done, asked, strict=True)
        ]

    def branches(
        self,
        leader: Array | None,
        number: int,
        towards: bool,
        how: Regulariser | None,
        asked: Sequence[tuple[int, int, float]],
    ) -> list[tuple[Summed, Sums]]:
        """Add up devices' gradients."""
        if leader is not None:
            copy_to(self.memory.leader, leader)
        (said,) = self.worker.branches(self.memory, 0, towards, how, asked)
        sums = self.memory.sums[0][: len(said.devices)].numpy()
        moved = {id: place for id, place, _ in asked if towards and id in said.added}
        rows = {id: self.memory.replies[place].numpy() for id, place in moved.items()}
        return [(replace(said, worker=number), (sums, rows))]

    def deliver(self, round: int, replies: Sequence[tuple[Answered, Array | None]]) -> None:
        """Run devices back from the cut."""
        for said, row in replies:
            if row is not None:
                copy_to(self.memory.replies[said.place][: len(row)], row)
        list(self.worker.deliver(self.memory, round, [said for said, _ in replies]))

    def evaluate(self, weights: Sequence[Array], *job: Any) -> list[tuple[int, Array]]:
        """Run an evaluation set through devices' models and the server's."""
        fill(self._server_models(), weights)
        return list(self.worker.evaluate(self.memory, *job))

    def models(self) -> list[Array]:
        """Return the client-side models."""
        return arrays(device.part.model for device in self.worker.devices.values())

    def put_models(self, found: Sequence[Array]) -> None:
        """Take over client-side models."""
        fill((device.part.model for device in self.worker.devices.values()), found)

    def state(self) -> dict[int, dict[str, Array]]:
        """Return everything that has to be stored, by device."""
        found = {id: device.tensors() for id, device in self.worker.devices.items()}
        return {id: {name: t.numpy() for name, t in own.items()} for id, own in found.items()}

    def put_state(self, stored: Mapping[int, Mapping[str, Array]]) -> None:
        """Restore what was stored."""
        for id, own in stored.items():
            self.worker.devices[id].load({name: writable(a) for name, a in own.items()})

    def _server_models(self) -> list[nn.Module]:
        return server_models(self.worker.strategy, self.worker.devices)


def server_models(strategy: Strategy, devices: Iterable[int]) -> list[nn.Module]:
    """Return the server-side models that some devices go through, each once."""
    found = (strategy.passes(device).part.model for device in devices)
    return list({id(model): model for model in found}.values())


def arrays(models: Iterable[nn.Module]) -> list[Array]:
    """Return the weights and buffers of models, as they lie in memory."""
    return [t.detach().numpy() for model in models for t in (*model.parameters(), *model.buffers())]


def fill(models: Iterable[nn.Module], found: Sequence[Array]) -> None:
    """Copy weights and buffers into models."""
    tensors = [t for model in models for t in (*model.parameters(), *model.buffers())]
    for tensor, array in zip(tensors, found, strict=True):
        copy_to(tensor, array)


def copy_to(tensor: Tensor, array: Array) -> None:
    """Copy an array, which may be read-only, into a tensor."""
    np.copyto(tensor.detach().numpy(), array)


def ordinary_memory(like: Sequence[Tensor]) -> list[Tensor]:
    """Return memory of this process alone."""
    return [torch.zeros_like(tensor, device="cpu") for tensor in like]


def versions_here() -> dict[str, str]:
    """Return the versions that must be the same on all hosts."""
    return {"gapsl": gapsl.__version__, "torch": torch.__version__}


def listed(versions: Mapping[str, str]) -> str:
    """Return versions as words."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())
