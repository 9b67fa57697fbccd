"""What the server and a device agree on about every tensor between them; both make it from Welcome."""

from __future__ import annotations

from dataclasses import dataclass

from gapsl.device.build import EVALUATION_BATCH
from gapsl.device.config import DeviceConfig
from gapsl.models.part import DTYPES
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import WIRE_DTYPES
from gapsl.network.protocol.framing import AtMost, TensorSpec


@dataclass(frozen=True)
class TensorContract:
    """Sizes, types and codings; whoever sends anything else is refused."""

    dtype: wire.Dtype
    cut: tuple[int, ...]  # the shape of one sample's activations
    rows: int  # of a mini-batch
    evaluation_rows: int  # of an evaluation batch; the last of a set has what is left
    classes: int
    probes: int = 0  # rows at the end of a mini-batch that have no label, which is -1
    features: tuple[int, ...] = ()  # the shape of one sample before the head, where devices have it
    inputs: tuple[int, ...] = ()  # the shape of one sample
    activations: wire.Codec = wire.PLAIN
    gradients: wire.Codec = wire.PLAIN
    compression: wire.Compression = wire.UNCOMPRESSED

    @classmethod
    def of(cls, welcome: wire.Welcome, config: DeviceConfig, cut: tuple[int, ...]) -> TensorContract:
        """Make the contract of a run whose activations have a shape, which both know from the model."""
        return cls(
            WIRE_DTYPES[DTYPES[config.precision]],
            cut,
            config.batch_size,
            EVALUATION_BATCH,
            len(welcome.classes),
            config.probes,
            tuple(welcome.features),
            tuple(welcome.inputs),
            activations=welcome.activations,
            gradients=welcome.gradients,
            compression=welcome.compression,
        )

    @property
    def labels(self) -> range:
        """What labels of samples may be at the server; none are sent where they stay with the devices."""
        return range(0) if self.features else range(self.classes)

    # --- from a device

    def upload(self) -> TensorSpec:
        """Return what a mini-batch's activations are."""
        return self.scored(self.rows)

    def proposal(self) -> TensorSpec:
        """Return what a step along a device's gradient would do to the probes is."""
        return self.scored(self.probes)

    def scored(self, rows: int) -> TensorSpec:
        """Return what an evaluation batch's activations are."""
        return self._spec(rows, self.cut, self.activations)

    def head_derivative(self, rows: int) -> TensorSpec:
        """Return what the derivative that a head sends is."""
        return self._spec(rows, self.features, self.gradients)

    def head_logits(self, rows: int) -> TensorSpec:
        """Return what the logits that a head sends are."""
        return TensorSpec(self.dtype, (rows, self.classes))

    # --- to a device

    def gradient(self, rows: int) -> TensorSpec:
        """Return what the gradient for an upload of so many rows is."""
        return self._spec(rows, self.cut, self.gradients)

    def evaluation_inputs(self) -> TensorSpec:
        """Return what the inputs of an evaluation batch are."""
        return TensorSpec(self.dtype, (AtMost(self.evaluation_rows), *self.inputs))

    def head_features(self, what: wire.Head.What) -> TensorSpec:
        """Return what is sent to a head."""
        rows = AtMost(self.rows if what == wire.Head.LOSS else self.evaluation_rows)
        return self._spec(rows, self.features, self.head_codec(what))

    def head_codec(self, what: wire.Head.What) -> wire.Codec:
        """Return how what is sent to a head is written: measures must not depend on it."""
        return self.activations if what == wire.Head.LOSS else wire.PLAIN

    def _spec(self, rows: int | AtMost, sample: tuple[int, ...], codec: wire.Codec) -> TensorSpec:
        return TensorSpec(self.dtype, (rows, *sample), (codec,), (self.compression,))
