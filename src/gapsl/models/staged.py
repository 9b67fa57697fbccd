"""A chain of layers whose cuts are numbered as people count them: after the k-th stage."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from gapsl.models.cut import Split, cut_chain
from gapsl.models.refusals import CutError


class Staged(nn.Sequential):
    """A chain with stops: cut k falls after the layer named `stops[k - 1]`.

    Dotted names cut it too, like every other chain.
    """

    def __init__(self, layers: OrderedDict[str, nn.Module], stops: tuple[str, ...], stage: str) -> None:
        super().__init__(layers)
        self.stops = stops
        self.stage = stage  # what a stage is called in messages, for example "convolution"

    def cut(self, at: int | str) -> Split:
        """Return the halves on either side of this cut."""
        if isinstance(at, str):
            return cut_chain(self, at)
        if isinstance(at, bool) or not 1 <= at <= len(self.stops):
            raise CutError(
                f"there is no cut {at}: a cut falls after {self.stage} 1 to {len(self.stops)}; "
                f"or name the device's last layer, for example {self.stops[0]!r}"
            )
        return cut_chain(self, self.stops[at - 1])
