"""A worker in a Ray actor, and weights as the arrays that go to it and come back."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import gapsl
from gapsl.fleets.memory import Memory, writable
from gapsl.fleets.messages import Job, WorkerResult
from gapsl.fleets.worker import Worker
from gapsl.methods.base import Strategy

Array = np.ndarray[Any, Any]
Sent = tuple[WorkerResult, list[Array]]  # with what of it is in the memory


class Actor:
    """A worker at home in a Ray actor, whose memory is its own: what others need comes with the answers."""

    worker: Worker
    memory: Memory

    def begin(self, packed: bytes, versions: Mapping[str, str]) -> tuple[dict[str, str], int]:
        """Take the worker; returns the versions that differ from the driver's, and this process."""
        different = {name: found for name, found in versions_here().items() if found != versions[name]}
        if not different:
            from ray import cloudpickle

            self.worker = cloudpickle.loads(packed)
            self.worker.begin()
            self.worker.number = 0  # in a memory of its own
            devices = self.worker.devices
            server, places = self.worker.strategy.server, len(devices)
            self.memory = Memory.laid_out(server, devices, places, 1, ordinary_memory)
        return different, os.getpid()

    def do(self, job: Job, weights: Sequence[Array] | None, along: Sequence[Array]) -> list[Sent]:
        """Do what is asked, with the server's weights and what of the driver's memory comes along."""
        if weights is not None:
            fill(server_models(self.worker.strategy, self.worker.devices), weights)
        for here, array in zip(job.crossing(self.memory), along, strict=True):
            copy_to(here, array)
        done = list(self.worker.do(job, self.memory))
        return [(said, [part.numpy() for part in said.crossing(self.memory)]) for said in done]

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


def packed(worker: Worker) -> bytes:
    """Return a worker as bytes, with what a script of the user's defines in it."""
    from ray import cloudpickle

    kind: Any = cloudpickle.CloudPickler

    class Pickler(kind):  # type: ignore[misc]
        def reducer_override(self, found: Any) -> Any:
            # Pickle takes a memory format for part of any module that has imported torch, also of the script.
            if isinstance(found, torch.memory_format):
                return getattr, (torch, str(found).removeprefix("torch."))
            return super().reducer_override(found)

    file = io.BytesIO()
    Pickler(file).dump(worker)
    return file.getvalue()


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
