"""The fleet in several processes of this machine, each with some of the devices.

What the server computes for a device is computed beside it, in the process that has it. Processes are forked:
data, models and the method are there without being sent. Weights, uploads and gradients lie in shared memory,
and pipes carry only who is to do what. The server's step stays where it was, so that gradients are added in
the order of devices however many processes there are: the weights are those of one process, to the bit.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gapsl.common.errors import Rewind, Unavailable
from gapsl.device.exchange import Exchange, Reply, Upload
from gapsl.fleets.base import Split, Whose
from gapsl.fleets.local import LocalFleet
from gapsl.fleets.shared_memory import share, shared_like
from gapsl.fleets.worker import Answer, Job, Memory, Worker, serve
from gapsl.methods.base import Strategy
from gapsl.methods.server_model import Contribution, Halfway, Regulariser, ServerModel

IN_VAIN = 3  # times that a process may die between two checkpoints
PATIENCE = 5.0  # seconds that a process has to end by itself


class ProcessFleet(LocalFleet):
    """Devices in processes of this machine. The objects of this process share their weights with theirs."""

    def __init__(self, processes: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._count_of_processes = processes
        self._running: list[Process] = []
        self._stored: Path | None = None  # what devices have to read before they go on
        self._deaths = 0  # since the last checkpoint
        self._computed: dict[tuple[int, ServerModel], Contribution | Halfway] = {}
        self._places: Mapping[int, int] = {}  # of the devices of an exchange in the memory
        for device in self._devices.values():
            share(device.half.model)

    def serve(self, strategy: Strategy, at_once: int) -> None:
        """Take the method whose passes are computed beside the devices, so many of them in a round."""
        self._strategy = strategy
        half = strategy.server.half
        models = {id(one.model): one.model for one in (half, *strategy.halves().values())}
        for model in models.values():
            share(model)
        device = next(iter(self._devices.values()))
        inputs, labels = device.batches.draw(1)
        device.batches.drawn -= 1
        rows = len(labels) + (0 if device.probes is None else device.probes.per_batch)
        with torch.no_grad():
            one = device.half.model.eval()(device.placed(inputs[:1]))
        first = half.parameters[0]
        cut = one.new_empty(0).new_empty(at_once, rows * one[0].numel(), device="meta")
        self._memory = Memory(
            *shared_like(
                [
                    first.new_empty(at_once, half.size, device="meta"),
                    first.new_empty(half.size, device="meta"),
                    cut,
                    cut,
                    labels.new_empty(at_once, len(labels), device="meta"),
                ]
            )
        )
        strategy.server.keep_rows(self._memory.rows)
        for passes in {strategy.server, *(strategy.passes(id) for id in self._devices)}:
            passes.elsewhere = self

    # --- what the loop asks for

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Let every process run its devices to the cut, and the server's passes for them."""
        self._places = {device: place for place, device in enumerate(exchange.devices)}
        self._computed.clear()
        state = self._strategy.passes_state()
        asked = {}
        for process in self._processes():
            mine = [(id, self._places[id]) for id in process.devices if id in self._places]
            if mine:
                process.tell(Job("collect", (round, exchange.turn, exchange.learn, mine, state)))
                asked[process] = len(mine)
        for answer in self._answers(asked):
            found = self._memory.get(answer, round, exchange.turn)
            upload = found.upload
            self._computed[upload.device, self._strategy.passes(upload.device)] = found
            self._count(upload.device, sent=upload.nbytes)
            yield upload

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Put the replies into the memory; processes go on with them while the server does."""
        for id, reply in sorted(replies.items()):
            self._count(id, received=reply.nbytes)
        for process in self._processes():
            mine = [
                self._memory.put_reply(id, self._places[id], replies[id])
                for id in process.devices
                if id in replies
            ]
            if mine:
                process.tell(Job("deliver", (round, mine)))

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

    def backwards(
        self, found: Sequence[Halfway], last: Sequence[Tensor], rows: Sequence[Tensor]
    ) -> list[Contribution]:
        """Let every process run its devices' passes back."""
        mine = {one.upload.device: (one.loss, there.numpy()) for one, there in zip(found, last, strict=True)}
        asked = {}
        for process in self._processes():
            jobs = [(id, self._places[id], *mine[id]) for id in process.devices if id in mine]
            if jobs:
                process.tell(Job("backwards", (jobs,)))
                asked[process] = len(jobs)
        uploads = {one.upload.device: one.upload for one in found}
        done: dict[int, Contribution] = {}
        for said in self._answers(asked):
            one = self._memory.get(said, 0, 0)
            assert isinstance(one, Contribution)
            done[one.device] = replace(one, upload=uploads[one.device])
        return [done[id] for id in uploads]

    def regularise(
        self, found: Sequence[Contribution], rows: Sequence[Tensor], leader: Tensor, how: Regulariser
    ) -> list[Tensor | None]:
        """Let every process add the derivatives of its devices' regularisers."""
        self._memory.leader.copy_(leader)
        by_device = {one.device: (one, row) for one, row in zip(found, rows, strict=True)}
        asked = {}
        for process in self._processes():
            mine = [
                (id, self._places[id], row.data_ptr() == self._memory.rows[self._places[id]].data_ptr())
                for id, (_, row) in sorted(by_device.items())
                if id in process.devices
            ]
            if mine:
                process.tell(Job("regularise", (how, mine)))
                asked[process] = len(mine)
        returned: dict[int, Tensor | None] = {}
        for id, finite, apart in self._answers(asked):
            one, row = by_device[id]
            if apart:
                row.add_(self._memory.rows[self._places[id]], alpha=how.weight)
            returned[id] = one.activation_gradient if finite else None
        return [returned[one.device] for one in found]

    def average(self, weights: Mapping[int, float]) -> None:
        """Average the client-side models where they lie."""
        self._settle()
        super().average(weights)

    def hand_over(self, source: int, target: int) -> None:
        """Copy a device's weights to another."""
        self._settle()
        super().hand_over(source, target)

    def evaluate(self, split: Split, whose: Whose) -> Iterator[Tensor]:
        """Run an evaluation set through one client-side model, here."""
        self._settle()
        yield from super().evaluate(split, whose)

    def probabilities(self, split: Split, count: int) -> Iterator[tuple[int, Tensor]]:
        """Let every process evaluate its devices."""
        asked = {}
        for process in self._processes():
            process.tell(Job("evaluate", (split, count)))
            asked[process] = len(process.devices)
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
        """Let every process write its devices' files."""
        self._ask_all(Job("save", (folder,)))
        self._deaths = 0

    def load(self, folder: Path, round: int) -> None:
        """Begin anew, with devices that read their files first."""
        self.close()
        self._stored = folder

    def close(self) -> None:
        """End the processes."""
        for process in self._running:
            process.end()
        self._running = []

    # --- the processes

    def _processes(self) -> list[Process]:
        """Return the processes, started if they are not running."""
        if not self._running:
            count, ids = self._count_of_processes, list(self._devices)
            ends = [len(ids) * i // count for i in range(count + 1)]
            for begin, end in pairwise(ends):
                mine = {id: self._devices[id] for id in ids[begin:end]}
                worker = Worker(mine, self._sets, self._strategy)
                self._running.append(Process.start(worker, self._memory, self._running))
            if self._stored is not None:
                self._ask_all(Job("load", (self._stored,)))
                self._stored = None
        return self._running

    def _settle(self) -> None:
        """Wait until every process has done what it was told."""
        self._ask_all(Job("settle"))

    def _ask_all(self, job: Job) -> None:
        processes = self._processes()
        for process in processes:
            process.tell(job)
        for _ in self._answers(dict.fromkeys(processes, 1)):
            pass

    def _answers(self, asked: dict[Process, int]) -> Iterator[Any]:
        """Yield so many answers of each process, as they come."""
        open_ = dict(asked)
        by_pipe = {process.pipe: process for process in open_}
        while open_:
            for pipe in wait([process.pipe for process in open_]):
                process = by_pipe[pipe]  # type: ignore[index]
                answer = self._hear(process)
                open_[process] -= 1
                if open_[process] == 0:
                    del open_[process]
                yield answer.value

    def _hear(self, process: Process) -> Answer:
        try:
            answer: Answer = process.pipe.recv()
        except (EOFError, OSError):
            raise self._died(process) from None
        if answer.error is not None:
            self.close()
            raise answer.error
        return answer

    def _died(self, process: Process) -> Exception:
        """Return what to raise for a process that is gone: the run goes back, or gives up."""
        how = process.how_it_ended()
        self.close()
        self._deaths += 1
        devices = f"devices {min(process.devices)} to {max(process.devices)}"
        if self._deaths >= IN_VAIN:
            return Unavailable(
                f"the process of {devices} {how}, and {IN_VAIN} died since the last checkpoint; if memory is "
                "short, use fewer processes, or go on in one: --processes 1"
            )
        return Rewind(f"the process of {devices} {how}")


@dataclass(eq=False)
class Process:
    """One process, seen from here."""

    pipe: Connection
    handle: multiprocessing.process.BaseProcess
    devices: tuple[int, ...]

    @staticmethod
    def start(worker: Worker, memory: Memory, others: Sequence[Process]) -> Process:
        """Fork a process that has these devices."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [ours, *(other.pipe for other in others)]
        handle = context.Process(
            target=serve, args=(worker, memory, theirs, inherited, os.getpid()), daemon=True
        )
        handle.start()
        theirs.close()
        return Process(ours, handle, tuple(worker.devices))

    def tell(self, job: Job) -> None:
        """Say what to do; a process that is gone is noticed when its answer does not come."""
        with suppress(OSError):
            self.pipe.send(job)

    def end(self) -> None:
        """End the process, by force if it has to be."""
        self.pipe.close()
        self.handle.join(PATIENCE)
        if self.handle.is_alive():
            self.handle.kill()
            self.handle.join()
        self.handle.close()

    def how_it_ended(self) -> str:
        """Say what became of it."""
        self.handle.join(PATIENCE)
        code = self.handle.exitcode
        if code is not None and code < 0:
            return f"was killed ({signal.Signals(-code).name})"
        return f"ended (exit code {code})"
