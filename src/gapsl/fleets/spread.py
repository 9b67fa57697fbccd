"""Devices of several workers, each of which has some of them and the server's passes for them.

What the server computes for a device is computed beside it. What meets here is a gradient row per device. The
server's step stays here, so that gradients are added in the order of devices however many workers there are:
the weights are those of one process, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from gapsl.device.exchange import Exchange, Reply, Upload
from gapsl.fleets.base import Split, Whose
from gapsl.fleets.memory import Memory, writable
from gapsl.fleets.remote_tensor import RemoteTensor, TensorName, own, regularised
from gapsl.fleets.workers import AnyLink, Workers
from gapsl.methods.base import Strategy
from gapsl.methods.contribution import Branches, Contribution, Halfway, Regulariser
from gapsl.methods.server_model import ServerModel


class Cut:
    """What workers have at the cut in one exchange, fetched when it is asked for."""

    def __init__(self, fetch: Callable[[TensorName], dict[int, Tensor]]) -> None:
        self._fetch = fetch
        self._found: dict[TensorName, dict[int, Tensor]] = {}
        self._names, self._over = 0, False

    def __call__(self, what: TensorName, device: int) -> Tensor:
        """Return a tensor of a device; the first question brings those of all."""
        if self._over:
            raise too_late(what, device)
        if device not in self._found.get(what, {}):
            self._found[what] = self._fetch(what)
        return self._found[what][device]

    def another(self, what: str) -> TensorName:
        """Return a name for something that may be there more than once."""
        self._names += 1
        return f"{what} {self._names}"

    def end(self) -> None:
        """Forget it: workers go on."""
        self._over, self._found = True, {}


def too_late(what: TensorName, device: int) -> RuntimeError:
    """Return what to raise for a tensor that workers do not have any more."""
    return RuntimeError(f"the {what} of device {device} are of an earlier exchange; clone them in time")


class SpreadFleet(Workers[AnyLink]):
    """Devices of several workers. The objects here have their weights, when they are asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._computed: dict[tuple[int, ServerModel], Contribution | Halfway] = {}
        self._cut = Cut(self._fetch)

    def serve(self, strategy: Strategy, at_once: int) -> None:
        """Take the method whose passes are computed beside the devices, so many of them in a round."""
        self._strategy = strategy
        workers = self._count_of_workers
        self._memory = Memory.laid_out(strategy.server, self._devices, at_once, workers, self._allocate)
        strategy.server.keep_rows(self._memory.rows)
        for passes in {strategy.server, *(strategy.passes(id) for id in self._devices)}:
            passes.elsewhere = self

    def collect(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        """Let every worker run its devices to the cut, and the server's passes for them."""
        if exchange.proposes:
            yield from self._proposals(round, exchange)
            return
        self._places = {device: place for place, device in enumerate(exchange.devices)}
        self._computed.clear()
        self._cut.end()
        self._cut = Cut(self._fetch)
        state = self._strategy.passes_state()
        devices, arrived = dict.fromkeys(exchange.devices, ()), []
        for said in self._ask("collect", devices, round, exchange.turn, exchange.learn, state):
            found = self._memory.get(said, round, exchange.turn, self._cut)
            self._computed[said.device, self._strategy.passes(said.device)] = found
            self._count(said.device, sent=found.upload.nbytes)
            arrived.append(found.upload)
        yield from arrived  # all at once: workers have nothing left to say when something else is asked for

    def _proposals(self, round: int, exchange: Exchange) -> Iterator[Upload]:
        self._places = {device: place for place, device in enumerate(exchange.devices)}
        asked = dict.fromkeys(exchange.devices, ())
        found = [
            self._memory.get_proposal(said, round, exchange.turn)
            for said in self._ask("propose", asked, round, exchange.turn)
        ]
        for upload in found:
            self._count(upload.device, sent=upload.nbytes)
            yield upload

    def deliver(self, round: int, replies: Mapping[int, Reply]) -> None:
        """Put the replies into the memory; workers go on with them while the server does."""
        mine = {id: own(reply.gradient, id) for id, reply in sorted(replies.items()) if reply.step}
        by_name = {id: gradient for id, gradient in mine.items() if gradient is not None}
        for id, gradient in by_name.items():
            if gradient.source is not self._cut:
                raise too_late(gradient.what, id)
        for id, reply in replies.items():  # first of all: what is fetched comes through the same memory
            for tensor in (reply.gradient, reply.pull) if reply.step else ():
                if isinstance(tensor, RemoteTensor) and tensor is not by_name.get(id):
                    tensor.here()
        for said in self._ask("lengths", {id: (one.what, one.divisor) for id, one in by_name.items()}):
            by_name[said.device].length = said.found  # which records want
        told = {}
        for id, reply in sorted(replies.items()):
            self._count(id, received=reply.nbytes)
            told[id] = (self._memory.put_reply(id, self._places[id], reply),)
        self._tell_all("deliver", told, round)

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
        jobs = {id: (one.loss, there.numpy()) for id, one, there in zip(uploads, found, last, strict=True)}
        done: dict[int, Contribution] = {}
        for said in self._ask("backwards", jobs):
            one = self._memory.get(said, 0, 0, self._cut)
            assert isinstance(one, Contribution)
            done[one.device] = replace(one, upload=uploads[one.device])
        return [done[id] for id in uploads]

    def regularise(
        self, found: Sequence[Contribution], rows: Sequence[Tensor], leader: Tensor, how: Regulariser
    ) -> list[Tensor | None]:
        """Let every worker add the derivatives of its devices' regularisers."""
        self._memory.leader.copy_(leader)
        by_device = {one.device: row for one, row in zip(found, rows, strict=True)}
        theirs = {id: self._memory.rows[self._places[id]] for id in by_device}
        jobs = {id: (row.data_ptr() == theirs[id].data_ptr(),) for id, row in by_device.items()}
        finite: set[int] = set()
        name = self._cut.another("regularised")
        for said in self._ask("regularise", jobs, how, name):
            if said.apart:
                by_device[said.device].add_(theirs[said.device], alpha=how.weight)
            if said.finite:
                finite.add(said.device)
        added = {one.device: regularised(one.activation_gradient, name) for one in found}
        return [added[one.device] if one.device in finite else None for one in found]

    def branches(
        self,
        found: Sequence[Contribution],
        weights: Sequence[float],
        leader: Tensor | None,
        how: Regulariser | None,
    ) -> tuple[Branches, list[Tensor | None]]:
        """Let every worker add up its devices' gradients."""
        towards = leader is not None
        if leader is not None:
            self._memory.leader.copy_(leader)
        jobs = {one.device: (weight,) for one, weight in zip(found, weights, strict=True)}
        name = self._cut.another("regularised")
        told = self._tell_all("branches", jobs, towards, how, name)
        branches: Branches = []
        added: set[int] = set()
        for said in self._answers(dict.fromkeys(told, 1)):
            branches += said.branches(self._memory)
            added.update(said.added)
        returned = {one.device: one.activation_gradient for one in found}
        if towards:
            returned = {id: regularised(gradient, name) for id, gradient in returned.items()}
        return branches, [returned[one.device] if one.device in added else None for one in found]

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
        for said in self._ask("evaluate", dict.fromkeys(devices, ()), split, count):
            yield said.device, writable(said.found)

    def drifts(self) -> Mapping[int, float]:
        """Return how far every client-side model is from its start."""
        self._settle()
        return super().drifts()

    def digests(self) -> Mapping[int, str]:
        """Return the SHA-256 of every client-side model."""
        self._settle()
        return super().digests()

    def _fetch(self, what: TensorName) -> dict[int, Tensor]:
        """Return what workers have at the cut, of all devices that there is such a thing of."""
        return {
            said.device: said.layout.read(self._memory.at_cut(what)[said.place]).clone()
            for said in self._ask("fetch", dict.fromkeys(self._places, ()), what)
            if said.layout is not None
        }
