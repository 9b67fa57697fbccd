"""Workers that are processes of this machine.

They are forked: data, models and the method are there without being sent. Weights and gradient rows lie
in shared memory, and pipes carry only who is to do what.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from torch import Tensor

from gapsl.device.exchange import Exchange, Upload
from gapsl.fleets.memory import Memory, share, shared_like
from gapsl.fleets.messages import Answer, Job
from gapsl.fleets.spread import SpreadFleet
from gapsl.fleets.worker import Worker, serve
from gapsl.methods.base import Strategy

PATIENCE = 5.0  # seconds that a process has to end by itself


@dataclass(eq=False)
class Process:
    """One process, seen from here."""

    pipe: Connection
    handle: multiprocessing.process.BaseProcess
    devices: tuple[int, ...]

    @staticmethod
    def start(worker: Worker, memory: Memory, others: Sequence[Process]) -> Process:
        """Fork a process that has a worker's devices."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [ours, *(other.pipe for other in others)]
        handle = context.Process(
            target=serve, args=(worker, memory, theirs, inherited, os.getpid()), daemon=True
        )
        handle.start()
        theirs.close()
        return Process(ours, handle, tuple(worker.devices))

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


class ProcessFleet(SpreadFleet[Process]):
    """Devices in processes of this machine. The objects of this process share their weights with theirs."""

    noun = "process"

    def serve(self, strategy: Strategy, at_once: int) -> None:
        """Take the method, and move all weights to where processes will find them."""
        server = (strategy.server.part, *strategy.parts().values())
        parts = [*server, *(device.part for device in self._devices.values())]
        for model in {id(part.model): part.model for part in parts}.values():
            share(model)
        super().serve(strategy, at_once)

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Let every process run its devices, after all have read their replies if others take part now."""
        if exchange.devices != tuple(self._places):  # places in the memory go to other processes
            self._settle()
        yield from super().collect(round, exchange)

    def _start(self, worker: Worker) -> Process:
        return Process.start(worker, self._memory, self._running)

    def _tell(self, link: Process, job: Job) -> None:
        with suppress(OSError):  # one that is gone is noticed when its answer does not come
            link.pipe.send(job)

    def _receive(self, asked: Mapping[Process, int]) -> Iterator[Any]:
        left = dict(asked)
        by_pipe: dict[Any, Process] = {process.pipe: process for process in left}
        while left:
            for pipe in wait([process.pipe for process in left]):
                process = by_pipe[pipe]
                left[process] -= 1
                if left[process] == 0:
                    del left[process]
                yield self._hear(process)

    def _hear(self, process: Process) -> Any:
        try:
            answer: Answer = process.pipe.recv()
        except (EOFError, OSError):
            raise self._died(process, process.how_it_ended()) from None
        if answer.error is not None:
            self.close()
            raise answer.error
        return answer.value

    @staticmethod
    def _allocate(like: Sequence[Tensor]) -> list[Tensor]:
        return shared_like(like)
