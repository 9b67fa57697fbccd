"""The server's passes where a round's gradients are too many to be kept: sketches are, and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from gapsl.alignment.sketch import BUCKETS, CountSketch, TreeSum, total_of
from gapsl.common.clock import Clock
from gapsl.common.streams import torch_stream
from gapsl.device.exchange import Upload
from gapsl.methods.contribution import Branches, Contribution, Regulariser
from gapsl.methods.server_model import Loss, ServerModel, clocked_pass, cross_entropy
from gapsl.models.part import ModelPart


class SketchedServerModel(ServerModel):
    """Passes whose gradients are computed again where more than their angles is asked for.

    A round's rows are sketches, which angles, scores and the choice of devices come from. The sum of all
    gradients is added up on the way; any other, and the leader's, takes another pass for each device in it.
    """

    after: int | None = None  # devices up to this one, and from that one on, are in other processes
    before: int | None = None

    def __init__(
        self,
        part: ModelPart,
        *,
        seed: int,
        weights: Mapping[int, float],
        averages: bool = True,
        loss: Loss = cross_entropy,
        device_loss: Loss | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(part, seed=seed, loss=loss, device_loss=device_loss, clock=clock)
        self.weights, self.averages = weights, averages  # of devices' losses in the round's; or it is a sum
        self._sketch: CountSketch | None = None
        self._whole = torch.empty(0)
        self.begin()

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what can be drawn and computed again."""
        return {**super().__getstate__(), "_sketch": None, "_whole": torch.empty(0), "_sum": TreeSum()}

    def copy(self) -> Self:
        found = super().copy()
        found.after, found.before = self.after, self.before
        return found

    def _words(self) -> dict[str, Any]:
        return {**super()._words(), "weights": self.weights, "averages": self.averages}

    @property
    def row_size(self) -> int:
        """The numbers of a sketch."""
        return min(self.part.size, BUCKETS)

    def rows(self, count: int) -> Tensor:
        """Return a (count, k) matrix for a round's sketches, and begin their sum."""
        self.begin()
        return super().rows(count)

    def begin(self) -> None:
        """Begin the sum of a round."""
        self._sum: TreeSum | None = TreeSum(self.after)

    @clocked_pass
    def first_order(self, upload: Upload, out: Tensor | None = None) -> Contribution:
        """Compute L_i and the activations' gradient; the sketch of g_i is written into `out`."""
        if self.elsewhere is not None:
            return super().first_order(upload, out)
        found = self._once_more(upload)
        device, summed = upload.device, self._sum
        if summed is not None and summed.devices and summed.devices[-1] >= device:
            self._sum = summed = None  # uploads came in another order: it is added up later, if it is needed
        if summed is not None:
            summed.add(device, found.gradient, self.weights[device])
        return replace(found, gradient=self._sketched(found.gradient, out))

    def mean(self, found: Sequence[Contribution]) -> Tensor:
        """Return the mean of gradients, all of which count alike."""
        branches, _ = (self.elsewhere or self).branches(found, [1.0] * len(found), None, None)
        return total_of(branches).div_(len(found))

    def reduced(
        self, found: Sequence[Contribution], leader: Tensor | None = None, how: Regulariser | None = None
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return the gradient of the round's loss, which these devices are in, and what goes back to them.

        Towards a leader, the regulariser's derivative is in both. A device whose derivative is not finite is
        not in the loss, and its gradient is None; where nobody is in it, so is the loss's.
        """
        weights = [self.weights[one.device] for one in found]
        branches, returned = (self.elsewhere or self).branches(found, weights, leader, how)
        if not branches:
            return None, returned
        total = total_of(branches)
        if self.averages:
            total.div_(sum(w for w, one in zip(weights, returned, strict=True) if one is not None))
        return total, returned

    def branches(
        self,
        found: Sequence[Contribution],
        weights: Sequence[float],
        leader: Tensor | None,
        how: Regulariser | None,
    ) -> tuple[Branches, list[Tensor | None]]:
        """Return the weighted sum of gradients, as parts that others may add to, and what goes back."""
        if leader is None and self._sums_up(found, weights):
            assert self._sum is not None
            return self._sum.branches(self.before), [one.activation_gradient for one in found]
        total = TreeSum(self.after)
        returned: list[Tensor | None] = []
        for one, weight in zip(found, weights, strict=True):
            gradient, on_activations = self._once_more(one.upload).gradient, one.activation_gradient
            if leader is not None and how is not None:
                whole = replace(one, gradient=gradient)
                on_weights, returns = self.regularised(whole, leader, how)
                if on_weights is not None:
                    gradient.add_(on_weights, alpha=how.weight)
                if returns is None:
                    returned.append(None)
                    continue
                on_activations = returns
            total.add(one.device, gradient, weight)
            returned.append(on_activations)
        return total.branches(self.before), returned

    def _sums_up(self, found: Sequence[Contribution], weights: Sequence[float]) -> bool:
        """Say whether the sum of the first passes is just that of these devices with these weights."""
        devices = [one.device for one in found]
        same = self._sum is not None and self._sum.devices == devices
        return same and list(weights) == [self.weights[device] for device in devices]

    def _once_more(self, upload: Upload) -> Contribution:
        """Compute a contribution with its whole gradient, in memory that the next one takes."""
        if len(self._whole) == 0:
            self._whole = torch.empty_like(self.part.flat())
        return super().first_order(upload, out=self._whole)

    def _sketched(self, gradient: Tensor, out: Tensor | None) -> Tensor:
        if self._sketch is None:
            stream = torch_stream(self.seed, "sketch")
            self._sketch = CountSketch(self.part.size, stream, gradient, self.row_size)
        return self._sketch(gradient, out)
