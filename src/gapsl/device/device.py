"""A device: its client-side model, its optimizer and the order of its data. It knows no method."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from gapsl.common.streams import global_stream
from gapsl.data.batches import Batches
from gapsl.data.probes import Probes
from gapsl.device.exchange import Exchange, Reply, Upload
from gapsl.device.graphs import GraphBudget
from gapsl.device.probe_alignment import ROUNDING, Agreement, learn_and_align
from gapsl.models.part import ModelPart, all_finite, digest

KEPT = "kept"  # under which name a checkpoint has what probes did not carry yet of a device's gradients


class Device:
    """One edge device: forward to the cut, and backward from it."""

    def __init__(
        self,
        id: int,
        part: ModelPart,
        batches: Batches,
        *,
        seed: int,
        where: torch.device,
        layout: torch.memory_format = torch.contiguous_format,
        probes: Probes | None = None,
        probe_steps: int = 0,
        probe_gradients: bool = False,
        graphs: GraphBudget | None = None,
    ) -> None:
        self.id, self.part, self.batches, self.seed, self.probes = id, part, batches, seed, probes
        self.where, self.layout, self.probe_steps = where, layout, probe_steps
        self._agreement = Agreement(part, probe_steps) if probe_gradients else None
        self._graphs = graphs  # None: the graph is always kept
        self._again: tuple[Tensor, int, int] | None = None  # what to run once more, where it was not
        self._probed: Tensor | None = None  # the probes of the last forward, to align on
        self._sent: Tensor | None = None  # activations whose graph waits for the reply, the probes' last
        self._unanswered = False  # whether the last forward can still be undone
        self._buffers: list[Tensor] = []  # BatchNorm's running statistics before that forward
        self._start = part.flat()  # the weights before training, to tell how far they have gone

    def answer(self, round: int, exchange: Exchange) -> Upload:
        """Do what an exchange asks for."""
        if exchange.proposes:
            return self.propose(round, exchange.turn)
        return self.forward(round, exchange.turn, learn=exchange.learn)

    def forward(self, round: int, turn: int = 0, *, learn: bool = True) -> Upload:
        """Run the next mini-batch, and the round's probes with it, up to the cut."""
        if self._agreement is not None:
            self._agreement.forget()  # a round that went on without it
        inputs, labels = self.batches.draw(round, turn)
        probes = 0
        if self.probes is not None:
            drawn = self.probes.of_round(round, turn)
            inputs, probes = torch.cat([inputs, drawn.to(inputs)]), len(drawn)
        model = self.part.model.train(learn)
        self._buffers = [buffer.clone() for buffer in model.buffers()] if learn else []
        inputs = self.placed(inputs)
        self._probed = inputs[-probes:] if probes and self.probe_steps else None
        keep = learn and (self._graphs is None or self._graphs.keep(self.id))
        activations = self._run(inputs, round, turn, graph=keep)
        self._again = (inputs, round, turn) if learn and not keep else None
        self._sent, self._unanswered = activations if learn else None, True
        return Upload.unpack(self.id, round, turn, activations.detach(), labels.to(self.where), probes)

    def propose(self, round: int, turn: int) -> Upload:
        """Return what a step along the round's gradient would do to the probes."""
        assert self.probes is not None and self._agreement is not None
        moves = self._agreement.propose(round, self.placed(self.probes.of_round(round)))
        return Upload(self.id, round, turn, moves[:0], torch.empty(0, dtype=torch.int64), moves)

    def _run(self, inputs: Tensor, round: int, turn: int, *, graph: bool) -> Tensor:
        with (
            global_stream(self.seed, "dropout-device", self.id, round, turn),
            torch.set_grad_enabled(graph),
        ):
            activations: Tensor = self.part.model(inputs)
        return activations

    def _run_again(self, inputs: Tensor, round: int, turn: int) -> Tensor:
        """Run a forward whose graph was not kept once more: the same masks, and the same statistics."""
        buffers = [buffer.clone() for buffer in self.part.model.buffers()]
        self.part.model.train()
        activations = self._run(inputs, round, turn, graph=True)
        for buffer, before in zip(self.part.model.buffers(), buffers, strict=True):
            buffer.data.copy_(before)  # unseen by the graph, whose backward does not read them
        return activations

    def placed(self, inputs: Tensor) -> Tensor:
        """Return inputs where the client-side model computes, in its precision and memory order."""
        inputs = inputs.to(self.where, self.part.parameters[0].dtype)
        return inputs.contiguous(memory_format=self.layout) if inputs.dim() == 4 else inputs

    def backward(self, round: int, reply: Reply) -> None:
        """Train the client-side model on the gradient at the cut, or skip the step with all of it.

        Where devices agree on gradients, its own waits for what they agree on, which is the next reply.
        """
        if self._agreement is not None and self._agreement.proposed:
            self._agreement.step(round, reply.pull if reply.step else None)
            return
        sent, self._sent, self._unanswered = self._sent, None, False
        again, self._again = self._again, None
        if self._graphs is not None:
            self._graphs.release(self.id)
        if sent is None:
            return
        if not reply.step:
            if not all_finite(sent.detach()):  # such a batch must not live on in the running statistics
                self._restore_buffers()
            return
        if again is not None:
            sent = self._run_again(*again)
        gradient = reply.pack()
        if gradient.stride() != sent.stride():  # what came over a network lies in another order in memory
            gradient = torch.empty_like(sent).copy_(gradient)
        if self._probed is not None:
            rounding = ROUNDING if self._agreement is not None else 0.0
            learn_and_align(self.part, sent, gradient, self._probed, self.probe_steps, rounding)
        else:
            torch.autograd.backward(sent, gradient)
        if self._agreement is not None:
            self._agreement.take(round, self.part.take_gradient())
        else:
            self.part.step(round)

    def forget(self) -> None:
        """Undo a forward whose reply will not come, as if the device had not been asked."""
        if self._agreement is not None:
            self._agreement.forget()
        if self._unanswered:
            self._sent, self._unanswered = None, False
            self.batches.drawn -= 1
            self._restore_buffers()

    def _restore_buffers(self) -> None:
        if self._buffers:  # none are kept of a forward that does not learn
            for buffer, before in zip(self.part.model.buffers(), self._buffers, strict=True):
                buffer.copy_(before)

    def activations(self, batches: Iterator[Tensor], model: nn.Module | None = None) -> Iterator[Tensor]:
        """Run inputs through the client-side model, or another, without training."""
        model = (model or self.part.model).eval()
        for inputs in batches:
            with torch.no_grad():  # not around the yield: who asks may leave off before the end
                found: Tensor = model(self.placed(inputs))
            yield found

    def drift(self) -> float:
        """Return how far the client-side model is from its start, relative to the start's own length."""
        return float((self.part.flat() - self._start).norm() / self._start.norm().clamp_min(1e-12))

    def digest(self) -> str:
        """Return the SHA-256 of the client-side model."""
        return digest(self.part.model)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that has to be stored."""
        kept = {} if self._agreement is None else {KEPT: self._agreement.kept}
        return {**self.part.tensors(), **kept, "drawn": torch.tensor(self.batches.drawn)}

    def load(self, stored: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        self.part.load({name: value for name, value in stored.items() if name not in ("drawn", KEPT)})
        self.batches.drawn = int(stored["drawn"])
        if self._agreement is not None:
            self._agreement.load(stored[KEPT])
