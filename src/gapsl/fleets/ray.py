"""Workers that are actors of a Ray cluster, on this machine or on many.

A worker goes to its actor once, with its devices and their data, and stays there. In a round the server's
weights go to the actors; for each device its gradient row, its activations and their gradient come back, as
numpy arrays. The run's files are read and written here: hosts need no disk in common.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import gapsl
from gapsl.common.errors import InputError, Unavailable
from gapsl.common.tensors import read_tensors, write_tensors
from gapsl.device.exchange import Exchange, Upload
from gapsl.fleets.base import Split
from gapsl.fleets.local import device_file
from gapsl.fleets.spread import SpreadFleet
from gapsl.fleets.worker import Answered, Computed, Job, Memory, Worker
from gapsl.methods.base import Strategy
from gapsl.methods.server_model import Regulariser

PATIENCE = 60.0  # seconds that a cluster has to place an actor

Array = np.ndarray[Any, Any]
Rows = Mapping[str, Array]  # of one device, by the part of the memory they belong to


class Actor:
    """A worker at home in a Ray actor, whose memory is its own: what others need comes with the answers."""

    def __init__(self, packed: bytes, versions: Mapping[str, str]) -> None:
        self.different = {name: found for name, found in versions_here().items() if found != versions[name]}
        if not self.different:
            import cloudpickle  # type: ignore[import-untyped]  # comes with ray

            self.worker: Worker = cloudpickle.loads(packed)
            self.worker.begin()
            devices = self.worker.devices
            self.memory = Memory.laid_out(self.worker.strategy.server, devices, len(devices), ordinary_memory)

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

    def deliver(self, round: int, replies: Sequence[tuple[Answered, Array | None]]) -> None:
        """Run devices back from the cut."""
        for said, row in replies:
            if row is not None:
                copy_to(self.memory.replies[said.place][: len(row)], row)
        list(self.worker.deliver(self.memory, round, [said for said, _ in replies]))

    def evaluate(self, weights: Sequence[Array], split: Split, count: int) -> list[tuple[int, Array]]:
        """Run an evaluation set through every device's model and the server's."""
        fill(self._server_models(), weights)
        return list(self.worker.evaluate(self.memory, split, count))

    def models(self) -> list[Array]:
        """Return the client-side models."""
        return arrays(device.half.model for device in self.worker.devices.values())

    def put_models(self, found: Sequence[Array]) -> None:
        """Take over client-side models."""
        fill((device.half.model for device in self.worker.devices.values()), found)

    def state(self) -> dict[int, dict[str, Array]]:
        """Return everything that has to be stored, by device."""
        found = {id: device.tensors() for id, device in self.worker.devices.items()}
        return {id: {name: t.numpy() for name, t in own.items()} for id, own in found.items()}

    def put_state(self, stored: Mapping[int, Mapping[str, Array]]) -> None:
        """Restore what was stored."""
        for id, own in stored.items():
            self.worker.devices[id].load({name: torch.from_numpy(a.copy()) for name, a in own.items()})

    def _server_models(self) -> list[nn.Module]:
        return server_models(self.worker.strategy, self.worker.devices)


@dataclass(eq=False)
class RayLink:
    """The way to one actor."""

    actor: Any
    devices: tuple[int, ...]
    process: int
    asked: list[Any] = field(default_factory=list)  # what it has not answered yet, the oldest first

    def place(self, device: int) -> int:
        """Return where a device is in the actor's memory."""
        return self.devices.index(device)

    def end(self) -> None:
        """End the actor."""
        import ray

        ray.kill(self.actor)


class RayFleet(SpreadFleet[RayLink]):
    """Devices on the actors of a Ray cluster."""

    noun = "Ray actor"

    def __init__(self, address: str | None, workers: int | None, *args: Any, **kwargs: Any) -> None:
        self._own_cluster = connect(address, workers)
        super().__init__(workers or cores_of_cluster(), *args, **kwargs)
        self._count_of_workers = min(self._count_of_workers, len(self._devices))
        self._weights: Any = None  # the server's, where the cluster keeps them

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Send the server's weights of now, and let every actor run its devices."""
        self._weights = None
        yield from super().collect(round, exchange)

    def probabilities(self, split: Split, count: int) -> Iterator[tuple[int, Tensor]]:
        """Send the server's weights of now, and let every actor evaluate its devices."""
        self._weights = None
        yield from super().probabilities(split, count)

    def save(self, folder: Path, round: int) -> None:
        """Have the devices' states handed over, and write a file for each."""
        for link in self._links():
            for id, own in self._ask(link, "state").items():
                write_tensors(
                    folder / device_file(id), {n: torch.from_numpy(a.copy()) for n, a in own.items()}
                )
        self._deaths = 0

    def finish(self) -> None:
        """End the actors, and the cluster if it was started here."""
        super().finish()
        if self._own_cluster:
            import ray

            ray.shutdown()

    def _restore(self, folder: Path) -> None:
        for link in self._running:
            stored = {id: read_tensors(folder / device_file(id)) for id in link.devices}
            self._ask(
                link, "put_state", {id: {n: t.numpy() for n, t in own.items()} for id, own in stored.items()}
            )

    def _settle(self) -> None:
        for link in self._links():
            fill((self._devices[id].half.model for id in link.devices), self._ask(link, "models"))

    def _moved(self) -> None:
        for link in self._links():
            self._ask(link, "put_models", arrays(self._devices[id].half.model for id in link.devices))

    def _start(self, worker: Worker) -> RayLink:
        import cloudpickle
        import ray

        try:
            packed = ray.put(cloudpickle.dumps(worker))
        except Exception as error:  # whatever an object of the user's raises
            raise InputError(f"the run cannot be sent to a Ray actor: {error}") from None
        options: Any = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        kind: Any = ray.remote(scheduling_strategy="SPREAD", **options)(Actor)
        actor = kind.remote(packed, versions_here())
        try:
            different, process = ray.get(actor.check.remote(), timeout=PATIENCE)
        except ray.exceptions.GetTimeoutError:
            ray.kill(actor)
            raise Unavailable(
                f"the Ray cluster had no core free for one more actor within {PATIENCE:.0f} s; use fewer "
                "--processes, or add a host to it: ray start --address HOST:PORT"
            ) from None
        if different:
            ray.kill(actor)
            raise InputError(
                f"a host of the Ray cluster has {listed(different)}, this one {listed(versions_here())}; "
                "install the same versions on all"
            )
        return RayLink(actor, tuple(worker.devices), process)

    def _tell(self, link: RayLink, job: Job) -> None:
        call, arguments = getattr(link.actor, job.name), job.arguments
        if job.name == "collect":
            round, turn, learn, mine, state = arguments
            arguments = (round, turn, learn, [(id, link.place(id)) for id, _ in mine], state)
        elif job.name == "backwards":
            arguments = ([(id, link.place(id), *rest) for id, _, *rest in arguments[0]],)
        elif job.name == "regularise":
            how, mine = arguments
            arguments = (self._memory.leader.numpy(), how, [(id, link.place(id), h) for id, _, h in mine])
        elif job.name == "deliver":
            round, replies = arguments
            arguments = (round, [self._reply(link, said) for said in replies])
        if job.name in ("collect", "evaluate"):
            arguments = (self._server_weights(link), *arguments)
        link.asked.append(call.remote(*arguments))

    def _reply(self, link: RayLink, said: Answered) -> tuple[Answered, Array | None]:
        row = None if said.rows is None else self._memory.replies[said.place][: said.rows.numel].numpy()
        return replace(said, place=link.place(said.device)), row

    def _answers(self, asked: Mapping[RayLink, int]) -> Iterator[Any]:
        import ray

        left = {link.asked[-1]: link for link in asked}
        while left:
            ready, _ = ray.wait(list(left))
            for answer in self._get(left.pop(ready[0])):
                yield self._taken(answer)

    def _taken(self, answer: Any) -> Any:
        """Put the arrays that came with an answer into the memory, and return the rest of it."""
        said, rows = answer
        if isinstance(rows, np.ndarray):  # what an evaluation found
            return said, rows.copy()
        place = self._places[said.device if isinstance(said, Computed) else said[0]]
        for part, row in rows.items():
            copy_to(getattr(self._memory, part)[place], row)
        return replace(said, place=place) if isinstance(said, Computed) else said

    def _ask(self, link: RayLink, name: str, *arguments: Any) -> Any:
        link.asked.append(getattr(link.actor, name).remote(*arguments))
        return self._get(link)

    def _get(self, link: RayLink) -> Any:
        """Return the answer to what an actor was asked last, after what it was told before."""
        import ray

        asked, link.asked = link.asked, []
        try:
            return ray.get(asked)[-1]
        except ray.exceptions.RayActorError:
            raise self._died(link, f"(process {link.process}) is gone") from None
        except ray.exceptions.RayTaskError as error:
            self.close()
            raise (error.cause if isinstance(error.cause, Exception) else error) from None

    def _server_weights(self, link: RayLink) -> Any:
        """Return the server's weights for an actor; where all have the same they are sent to a host once."""
        import ray

        own = arrays(server_models(self._strategy, link.devices))
        if self._strategy.passes(link.devices[0]) is not self._strategy.server:
            return own
        self._weights = self._weights or ray.put(own)
        return self._weights

    @staticmethod
    def _allocate(like: Sequence[Tensor]) -> list[Tensor]:
        return ordinary_memory(like)


def cores_of_cluster() -> int:
    """Return how many actors of one core there is room for."""
    import ray

    resources: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


def connect(address: str | None, workers: int | None) -> bool:
    """Connect to a cluster, or start one here; say whether it was started."""
    try:
        import ray
    except ImportError:
        raise InputError("--fleet ray needs ray; install it with: pip install 'gapsl[ray]'") from None
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise Unavailable(
            f"no Ray cluster answers at {address}: {str(error).splitlines()[0]}; "
            "start one with: ray start --head"
        ) from None
    return address is None


def server_models(strategy: Strategy, devices: Iterable[int]) -> list[nn.Module]:
    """Return the server-side models that some devices go through, each once."""
    found = (strategy.passes(device).half.model for device in devices)
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
