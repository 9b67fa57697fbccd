"""Devices of several workers, each of which has some of them and the server's passes for them.

What the server computes for a device is computed beside it. What meets here is a gradient row per device. The
server's step stays here, so that gradients are added in the order of devices however many workers there are:
the weights are those of one process, to the bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from gapsl.common.errors import Rewind, Unavailable
from gapsl.device.exchange import Exchange, Reply, Upload
from gapsl.fleets.base import Split, Whose
from gapsl.fleets.local import LocalFleet
from gapsl.fleets.memory import Memory
from gapsl.fleets.worker import Job, Worker
from gapsl.methods.base import Strategy
from gapsl.methods.contribution import Branches, Contribution, Halfway, Regulariser
from gapsl.methods.server_model import ServerModel

IN_VAIN = 3  # times that a worker may die between two checkpoints


class Link(Protocol):
    """The way to one worker."""

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices it has."""
        ...

    def end(self) -> None:
        """End the worker."""
        ...


AnyLink = TypeVar("AnyLink", bound=Link)


class SpreadFleet(LocalFleet, Generic[AnyLink]):
    """Devices of several workers. The objects here have their weights, when they are asked for."""

    noun = "worker"

    def __init__(self, workers: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._count_of_workers = workers
        self._running: list[AnyLink] = []
        self._stored: Path | None = None  # what devices have to read before they go on
        self._deaths = 0  # since the last checkpoint
        self._computed: dict[tuple[int, ServerModel], Contribution | Halfway] = {}
        self._places: Mapping[int, int] = {}  # of the devices of an exchange in the memory

    def serve(self, strategy: Strategy, at_once: int) -> None:
        """Take the method whose passes are computed beside the devices, so many of them in a round."""
        self._strategy = strategy
        workers = self._count_of_workers
        self._memory = Memory.laid_out(strategy.server, self._devices, at_once, workers, self._allocate)
        strategy.server.keep_rows(self._memory.rows)
        for passes in {strategy.server, *(strategy.passes(id) for id in self._devices)}:
            passes.elsewhere = self

    # --- what kinds of workers differ in

    @abstractmethod
    def _start(self, worker: Worker) -> AnyLink:
        """Start a worker."""

    @abstractmethod
    def _tell(self, link: AnyLink, job: Job) -> None:
        """Say what to do."""

    @abstractmethod
    def _answers(self, asked: Mapping[AnyLink, int]) -> Iterator[Any]:
        """Yield so many answers of each worker, as they come."""

    @staticmethod
    @abstractmethod
    def _allocate(like: Sequence[Tensor]) -> list[Tensor]:
        """Return memory for tensors like these."""

    def _moved(self) -> None:
        """Take note that client-side models were changed here."""

    # --- what the loop asks for

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Let every worker run its devices to the cut, and the server's passes for them."""
        self._places = {device: place for place, device in enumerate(exchange.devices)}
        self._computed.clear()
        state = self._strategy.passes_state()
        turn, learn = exchange.turn, exchange.learn
        places = {id: (id, place) for id, place in self._places.items()}
        asked = self._share(places, lambda _, mine: Job("collect", (round, turn, learn, mine, state)))
        for answer in self._answers(asked):
            found = self._memory.get(answer, round, exchange.turn)
            upload = found.upload
            self._computed[upload.device, self._strategy.passes(upload.device)] = found
            self._count(upload.device, sent=upload.nbytes)
            yield upload

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Put the replies into the memory; workers go on with them while the server does."""
        for id, reply in sorted(replies.items()):
            self._count(id, received=reply.nbytes)
        said = {id: self._memory.put_reply(id, self._places[id], one) for id, one in replies.items()}
        self._share(said, lambda _, mine: Job("deliver", (round, mine)))

    def contribution(self, passes: ServerModel, upload: Upload) -> Contribution | None:
        """Return what was computed for an upload beside its device."""
        found = self._computed.get((upload.device, passes))
        return found if isinstance(found, Contribution) else None

    def halfway(self, passes: ServerModel, upload: Upload) -> Halfway | None:
        """Return how an upload was run to the logits beside its device, once: it can go back once."""
        found = self._computed.get((upload.device, passes))
        if not isinstance(found, Halfway):
            return None
        del self._computed[upload.device, passes]
        return found

    def backwards(self, found: Sequence[Halfway], last: Sequence[Tensor]) -> list[Contribution]:
        """Let every worker run its devices' passes back."""
        uploads = {one.upload.device: one.upload for one in found}
        jobs = {
            id: (id, self._places[id], one.loss, there.numpy())
            for id, one, there in zip(uploads, found, last, strict=True)
        }
        asked = self._share(jobs, lambda _, mine: Job("backwards", (mine,)))
        done: dict[int, Contribution] = {}
        for said in self._answers(asked):
            one = self._memory.get(said, 0, 0)
            assert isinstance(one, Contribution)
            done[one.device] = replace(one, upload=uploads[one.device])
        return [done[id] for id in uploads]

    def regularise(
        self, found: Sequence[Contribution], rows: Sequence[Tensor], leader: Tensor, how: Regulariser
    ) -> list[Tensor | None]:
        """Let every worker add the derivatives of its devices' regularisers."""
        self._memory.leader.copy_(leader)
        by_device = {one.device: (one, row) for one, row in zip(found, rows, strict=True)}
        jobs = {
            id: (id, self._places[id], row.data_ptr() == self._memory.rows[self._places[id]].data_ptr())
            for id, (_, row) in by_device.items()
        }
        asked = self._share(jobs, lambda _, mine: Job("regularise", (how, mine)))
        returned: dict[int, Tensor | None] = {}
        for id, finite, apart in self._answers(asked):
            one, row = by_device[id]
            if apart:
                row.add_(self._memory.rows[self._places[id]], alpha=how.weight)
            returned[id] = one.activation_gradient if finite else None
        return [returned[one.device] for one in found]

    def branches(
        self,
        found: Sequence[Contribution],
        weights: Sequence[float],
        leader: Tensor | None,
        how: Regulariser | None,
    ) -> tuple[Branches, list[Tensor | None]]:
        """Let every worker add up its devices' gradients."""
        if leader is not None:
            self._memory.leader.copy_(leader)
        jobs = {
            one.device: (one.device, self._places[one.device], weight)
            for one, weight in zip(found, weights, strict=True)
        }
        towards = leader is not None
        asked = self._share(jobs, lambda number, mine: Job("branches", (number, towards, how, mine)))
        branches: Branches = []
        added: set[int] = set()
        for said in self._answers(dict.fromkeys(asked, 1)):
            branches += said.branches(self._memory)
            added.update(said.added)
        return branches, [one.activation_gradient if one.device in added else None for one in found]

    def average(self, weights: Mapping[int, float]) -> None:
        """Average the client-side models where they lie."""
        self._settle()
        super().average(weights)
        self._moved()

    def hand_over(self, source: int, target: int) -> None:
        """Copy a device's weights to another."""
        self._settle()
        super().hand_over(source, target)
        self._moved()

    def evaluate(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Run an evaluation set through one client-side model, here."""
        self._settle()
        yield from super().evaluate(split, whose)

    def probabilities(
        self, split: Split, count: int, devices: Collection[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Let every worker evaluate its devices."""
        asked = self._share({id: id for id in devices}, lambda _, mine: Job("evaluate", (split, count, mine)))
        for id, found in self._answers(asked):
            yield id, torch.from_numpy(found)

    def drifts(self) -> Mapping[int, float]:
        """Return how far every client-side model is from its start."""
        self._settle()
        return super().drifts()

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of every client-side model."""
        self._settle()
        return super().digests()

    def save(self, folder: Path, round: int) -> None:
        """Let every worker write its devices' files."""
        self._ask_all(Job("save", (folder,)))
        self._deaths = 0

    def load(self, folder: Path, round: int) -> None:
        """Begin anew, with devices that read their files first."""
        self.close()
        self._stored = folder

    def close(self) -> None:
        """End the workers."""
        for link in self._running:
            link.end()
        self._running = []

    def finish(self) -> None:
        """End the workers for good."""
        self.close()

    # --- the workers

    def _links(self) -> list[AnyLink]:
        """Return the ways to the workers, which are started if they are not running."""
        if not self._running:
            count, ids = self._count_of_workers, list(self._devices)
            for begin, end in pairwise([len(ids) * i // count for i in range(count + 1)]):
                mine = {id: self._devices[id] for id in ids[begin:end]}
                self._running.append(self._start(Worker(mine, self._sets, self._strategy)))
            if self._stored is not None:
                self._restore(self._stored)
                self._stored = None
        return self._running

    def _restore(self, folder: Path) -> None:
        """Let the devices of workers that have just started go back to what is stored."""
        self._ask_all(Job("load", (folder,)))

    def _settle(self) -> None:
        """Wait until every worker has done what it was told, and have the weights here."""
        self._ask_all(Job("settle"))

    def _share(self, what: Mapping[int, Any], job: Callable[[int, list[Any]], Job]) -> dict[AnyLink, int]:
        """Tell every worker, by its number, what is its devices'; returns how much of it each was told."""
        told = {}
        for number, link in enumerate(self._links()):
            mine = [what[id] for id in link.devices if id in what]
            if mine:
                self._tell(link, job(number, mine))
                told[link] = len(mine)
        return told

    def _ask_all(self, job: Job) -> list[Any]:
        links = self._links()
        for link in links:
            self._tell(link, job)
        return list(self._answers(dict.fromkeys(links, 1)))

    def _died(self, link: AnyLink, how: str) -> Exception:
        """Return what to raise for a worker that is gone: the run goes back, or gives up."""
        self.close()
        self._deaths += 1
        gone = f"the {self.noun} of devices {min(link.devices)} to {max(link.devices)} {how}"
        if self._deaths >= IN_VAIN:
            return Unavailable(
                f"{gone}, and {IN_VAIN} died since the last checkpoint; if memory is short, use fewer "
                "processes, or go on in one: --processes 1"
            )
        return Rewind(gone)
