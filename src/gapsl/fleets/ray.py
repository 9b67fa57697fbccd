"""Workers that are actors of a Ray cluster, on this machine or on many.

A worker goes to its actor once, with its devices and their data, and stays there. In a round the server's
weights go to the actors, and a gradient row for each device comes back, as numpy arrays. Activations and
their gradients stay where they are unless the method computes with them. The run's files are read and written
here: hosts need no disk in common.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gapsl.common.errors import InputError, Unavailable
from gapsl.device.exchange import Exchange, Upload
from gapsl.fleets.base import Split
from gapsl.fleets.memory import writable
from gapsl.fleets.messages import Job, Summed, WorkerResult
from gapsl.fleets.ray_actor import (
    Actor,
    Array,
    arrays,
    copy_to,
    fill,
    listed,
    ordinary_memory,
    packed,
    server_models,
    versions_here,
)
from gapsl.fleets.spread import SpreadFleet
from gapsl.fleets.worker import Worker
from gapsl.models.device_files import read_devices, write_devices

PATIENCE = 60.0  # seconds that a cluster without a free core has to find one
STARTING = 600.0  # that a host, which may be busy, has to start an actor
ANSWERS = 5.0  # seconds that it has to answer


@dataclass(eq=False)
class RayLink:
    """The way to one actor."""

    actor: Any
    devices: tuple[int, ...]
    process: int
    asked: list[Any] = field(default_factory=list)  # what it has not answered yet, the oldest first

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

    def probabilities(
        self, split: Split, count: int, devices: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Send the server's weights of now, and let every actor evaluate its devices."""
        self._weights = None
        yield from super().probabilities(split, count, devices)

    def save(self, folder: Path, round: int) -> None:
        """Have the devices' states handed over, and write them."""
        for link in self._links():
            handed = self._called(link, "state")
            states = {id: {name: writable(a) for name, a in own.items()} for id, own in handed.items()}
            write_devices(folder, states)
        self._deaths = 0

    def finish(self) -> None:
        """End the actors, and the cluster if it was started here."""
        super().finish()
        if self._own_cluster:
            import ray

            ray.shutdown()

    def _restore(self, folder: Path) -> None:
        for link in self._running:
            stored = read_devices(folder, link.devices)
            self._called(
                link, "put_state", {id: {n: t.numpy() for n, t in own.items()} for id, own in stored}
            )

    def _settle(self) -> None:
        for link in self._links():
            fill((self._devices[id].part.model for id in link.devices), self._called(link, "models"))

    def _moved(self) -> None:
        for link in self._links():
            self._called(link, "put_models", arrays(self._devices[id].part.model for id in link.devices))

    def _start(self, worker: Worker) -> RayLink:
        import ray

        try:
            sent = ray.put(packed(worker))
        except Exception as error:  # whatever an object of the user's raises
            raise InputError(f"the run cannot be sent to a Ray actor: {error}") from None
        options: Any = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        kind: Any = ray.remote(scheduling_strategy="SPREAD", **options)(Actor)
        free = ray.available_resources().get("CPU", 0.0) >= 1  # type: ignore[no-untyped-call]
        actor = kind.remote()
        try:
            begun = actor.begin.remote(sent, versions_here())
            different, process = ray.get(begun, timeout=STARTING if free else PATIENCE)
        except ray.exceptions.GetTimeoutError:
            ray.kill(actor)
            if free:
                raise Unavailable(
                    f"a Ray actor has not begun within {STARTING:.0f} s; see what its host is busy with"
                ) from None
            raise Unavailable(
                f"the Ray cluster had no core free for one more actor within {PATIENCE:.0f} s; use fewer "
                "--processes, or add a host to it: ray start --address HOST:PORT"
            ) from None
        except ray.exceptions.RayTaskError as error:
            ray.kill(actor)
            raise InputError(f"a Ray actor cannot take the run: {error.cause}") from None
        except ray.exceptions.RayActorError as error:
            why = str(error).strip().splitlines()[-1]
            if error.actor_init_failed:  # its host lacks gapsl, or has one without actors
                raise InputError(f"a host of the Ray cluster cannot run gapsl: {why}") from None
            raise Unavailable(f"a Ray actor was gone before it began: {why}") from None
        if different:
            ray.kill(actor)
            raise InputError(
                f"a host of the Ray cluster has {listed(different)}, this one {listed(versions_here())}; "
                "install the same versions on all"
            )
        return RayLink(actor, tuple(worker.devices), process)

    def _tell(self, link: RayLink, job: Job) -> None:
        weights = self._server_weights(link) if job.name in ("collect", "evaluate") else None
        along = [part.numpy() for part in job.crossing(self._memory)]
        self._call(link, "do", job.placed(link.devices.index), weights, along)

    def _receive(self, asked: Mapping[RayLink, int]) -> Iterator[WorkerResult]:
        import ray

        left = {link.asked[-1]: link for link in asked}
        while left:
            ready, _ = ray.wait(list(left))
            link = left.pop(ready[0])
            for said, along in self._get(link):
                yield self._taken(link, said, along)

    def _taken(self, link: RayLink, said: WorkerResult, along: Sequence[Array]) -> WorkerResult:
        """Put the arrays that came with an answer into the memory here."""
        summed = isinstance(said, Summed)
        place = self._running.index(link) if summed else self._places.get(said.device, 0)
        said = replace(said, place=place)
        for here, array in zip(said.crossing(self._memory), along, strict=True):
            copy_to(here, array)
        return said

    def _call(self, link: RayLink, name: str, *arguments: Any) -> None:
        link.asked.append(getattr(link.actor, name).remote(*arguments))

    def _called(self, link: RayLink, name: str, *arguments: Any) -> Any:
        self._call(link, name, *arguments)
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
    check_there(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise nobody_at(address, str(error).splitlines()[0]) from None
    return address is None


def check_there(address: str | None) -> None:
    """Refuse an address that nobody answers; Ray itself would try for many minutes."""
    if address in (None, "auto", "local"):
        return
    host, _, port = str(address).rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise InputError(f"a Ray cluster has an address like HOST:6379, or is found by auto, not {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS).close()
    except (OSError, OverflowError) as error:
        raise nobody_at(address, str(error)) from None


def nobody_at(address: str | None, why: str) -> Unavailable:
    """Return what to raise where no cluster answers."""
    return Unavailable(
        f"no Ray cluster answers at {address}: {why}; start one with: ray start --head, or "
        "leave the address out, and one is started here"
    )
