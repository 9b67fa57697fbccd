"""What the server and the devices agree on about what crosses the cut."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.framing import Expected


@dataclass(frozen=True)
class Agreed:
    """Sizes, types and codings; whoever sends anything else is refused."""

    dtype: wire.Dtype
    cut: tuple[int, ...]  # the shape of one sample's activations
    rows: int  # of a mini-batch
    evaluation_rows: int  # of an evaluation batch; the last of a set has what is left
    classes: int
    probes: int = 0  # rows at the end of a mini-batch that have no label, which is -1
    features: tuple[int, ...] = ()  # the shape of one sample before the head, where devices have it
    activations: wire.Codec = wire.PLAIN
    gradients: wire.Codec = wire.PLAIN
    compression: wire.Compression = wire.UNCOMPRESSED
    layout: torch.memory_format = torch.contiguous_format
    where: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def labels(self) -> range:
        """What labels of samples may be."""
        return range(self.classes)

    def upload(self) -> Expected:
        """Return what a mini-batch's activations are."""
        return Expected(self.dtype, (self.rows, *self.cut), (self.activations,), (self.compression,))

    def scored(self, rows: int) -> Expected:
        """Return what an evaluation batch's activations are."""
        return Expected(self.dtype, (rows, *self.cut), (self.activations,), (self.compression,))

    def judged(self, rows: int) -> Expected:
        """Return what the derivative that a head sends is."""
        return Expected(self.dtype, (rows, *self.features), (self.gradients,), (self.compression,))

    def logits(self, rows: int) -> Expected:
        """Return what the logits that a head sends are."""
        return Expected(self.dtype, (rows, self.classes))

    def placed(self, tensor: Tensor) -> Tensor:
        """Return what arrived where the server computes, in its memory order."""
        tensor = tensor.to(self.where)
        return tensor.contiguous(memory_format=self.layout) if tensor.dim() == 4 else tensor
