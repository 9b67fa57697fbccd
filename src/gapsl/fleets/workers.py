"""The workers of a fleet: how they are started, told what to do and heard, and what happens when one dies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from gapsl.common.errors import Rewind, Unavailable
from gapsl.fleets.local import LocalFleet
from gapsl.fleets.messages import Job, WorkerResult
from gapsl.fleets.worker import Worker
from gapsl.methods.base import Strategy

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


class Workers(LocalFleet, Generic[AnyLink]):
    """A fleet whose devices are shared out among workers."""

    noun = "worker"
    _strategy: Strategy

    def __init__(self, workers: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._count_of_workers = workers
        self._running: list[AnyLink] = []
        self._stored: Path | None = None  # what devices have to read before they go on
        self._deaths = 0  # since the last checkpoint
        self._places: Mapping[int, int] = {}  # of the devices of an exchange in the memory

    # --- what kinds of workers differ in

    @abstractmethod
    def _start(self, worker: Worker) -> AnyLink:
        """Start a worker."""

    @abstractmethod
    def _tell(self, link: AnyLink, job: Job) -> None:
        """Say what to do."""

    @abstractmethod
    def _receive(self, asked: Mapping[AnyLink, int]) -> Iterator[Any]:
        """Yield so many answers of each worker, as they come."""

    @staticmethod
    @abstractmethod
    def _allocate(like: Sequence[Tensor]) -> list[Tensor]:
        """Return memory for tensors like these."""

    def _restore(self, folder: Path) -> None:
        """Let the devices of workers that have just started go back to what is stored."""
        self._ask_all(Job("load", common=(folder,)))

    def _settle(self) -> None:
        """Wait until every worker has done what it was told, and have the weights here."""
        self._ask_all(Job("settle"))

    def _moved(self) -> None:
        """Take note that client-side models were changed here."""

    # --- what they have in common

    def save(self, folder: Path, round: int) -> None:
        """Let every worker write its devices' files."""
        self._ask_all(Job("save", common=(folder,)))
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

    def _links(self) -> list[AnyLink]:
        """Return the ways to the workers, which are started if they are not running."""
        if not self._running:
            count, ids = self._count_of_workers, list(self._devices)
            for number, (begin, end) in enumerate(pairwise(len(ids) * i // count for i in range(count + 1))):
                mine = {id: self._devices[id] for id in ids[begin:end]}
                self._running.append(self._start(Worker(mine, self._sets, self._strategy, number)))
            if self._stored is not None:
                self._restore(self._stored)
                self._stored = None
        return self._running

    def _ask(self, name: str, what: Mapping[int, tuple[Any, ...]], *common: Any) -> Iterator[Any]:
        """Ask every worker to do something for its devices; yields what is said of each, as it comes."""
        return self._answers(self._tell_all(name, what, *common))

    def _tell_all(self, name: str, what: Mapping[int, tuple[Any, ...]], *common: Any) -> dict[AnyLink, int]:
        """Tell every worker what to do for its devices; returns for how many of them."""
        told = {}
        for link in self._links():
            mine = [(id, self._places.get(id, 0), *what[id]) for id in link.devices if id in what]
            if mine:
                self._tell(link, Job(name, mine, common))
                told[link] = len(mine)
        return told

    def _answers(self, asked: Mapping[AnyLink, int]) -> Iterator[Any]:
        """Yield so many answers of each worker, as they come; what they say of time is noted."""
        for answer in self._receive(asked):
            if isinstance(answer, WorkerResult):
                for device, spent in answer.seconds.items():
                    self.clock.add(device, spent)
            yield answer

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
