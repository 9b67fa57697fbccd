"""The server-side model of a trained run behind gRPC: devices send activations, and get logits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import grpc
import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.device.build import EVALUATION_BATCH
from gapsl.inference.split_model import TrainedParts, blank_parts
from gapsl.models.part import all_finite
from gapsl.network.parameter_server.service import Link
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import INFERENCE
from gapsl.network.protocol.codec import WIRE_DTYPES, describe
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import Assembler, AtMost, TensorSpec, deserialize, framed
from gapsl.network.protocol.settings import CODECS, COMPRESSIONS
from gapsl.network.serving import Door, Identify, OpenStreams, Serving, check_protocol, listed

WAITING = 16  # questions that are taken in at once, one of which is computed
MOST_QUESTIONS = 4  # of one device at once
SILENCE_SECONDS = 20.0  # without a part sent or taken: others are patient for longer than that

Outgoing = wire.ToPredictor | memoryview


class InferenceService:
    """Answers devices' questions one after another; a bad one is refused, and ends itself alone."""

    def __init__(
        self,
        parts: TrainedParts,
        names: Sequence[str] = (),
        *,
        waiting: int = WAITING,
        identify: Identify = lambda context: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        if parts.server is None:
            raise InputError(
                "this is a device's part; serve-model needs a run or an export with the server's"
            )
        self._model, self._info, self._run = parts.server.eval(), parts.info, parts.run
        self._names, self._tell = tuple(names), tell  # no names: whoever has a certificate may ask
        self._fingerprint = parts.info.fingerprint()
        self._spec = TensorSpec(
            WIRE_DTYPES[parts.info.dtype],
            (AtMost(EVALUATION_BATCH), *shape_at_cut(parts)),
            tuple(CODECS.values()),
            tuple(COMPRESSIONS.values()),
        )
        self._waiting, self._room = waiting, threading.BoundedSemaphore(waiting)
        self._computing = threading.Lock()
        self._open = OpenStreams(MOST_QUESTIONS)
        self._door = Door(wire.FromPredictor, "question", wire.ToPredictor, identify, tell)

    def predict(self, stream: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Outgoing]:
        """Answer one question."""
        return self._door.served(stream, context, partial(self._answered, stream, context))

    def _answered(
        self, stream: Iterator[bytes], context: grpc.ServicerContext, question: wire.Question
    ) -> Iterator[Outgoing]:
        self._admit(question, self._door.identify(context))
        self._spec.check(question.activations)
        # Room is taken before memory is: who comes when there is none is told to come again.
        if not self._room.acquire(blocking=False):
            raise WireError(wire.TOO_OFTEN, f"{self._waiting} questions are waiting; ask again in a moment")
        try:
            link = Link(stream, context, self._tell, repr(question.name[:100]))
            with self._open.of(question.name, context):
                activations = whole(link.heard(SILENCE_SECONDS), question.activations, self._spec)
                header, payload = describe(self._computed(activations), wire.PLAIN)
                for message in framed(wire.ToPredictor(answer=wire.Answer(outputs=header)), payload):
                    with link.moving(SILENCE_SECONDS):
                        yield message
        finally:
            self._room.release()

    def _admit(self, question: wire.Question, identity: str | None) -> None:
        """Refuse who is not what it says, or has another model's client-side part."""
        check_protocol(question.protocol, question.version)
        listed(question.name, self._names or (question.name,), identity)
        if question.model != self._fingerprint:
            info = self._info
            raise WireError(
                wire.OTHER_RUN,
                "the client-side model is of another model or cut; this server has "
                f"{info.own_model or info.model} "
                f"cut at {info.cut}, inputs {info.input_shape}, {len(info.classes)} classes",
            )
        if question.run and self._run and question.run != self._run:
            raise WireError(
                wire.OTHER_RUN,
                f"the client-side model was trained in run {question.run[:100]!r}, the server-side model in "
                f"{self._run!r}; use parts of one run",
            )

    def _computed(self, activations: Tensor) -> Tensor:
        if not len(activations):
            raise WireError(wire.MALFORMED, "a batch of no samples")
        if not all_finite(activations):
            raise WireError(wire.NOT_FINITE, "activations that are not finite")
        with self._computing, torch.no_grad():
            outputs: Tensor = self._model(activations)
        return outputs


def shape_at_cut(parts: TrainedParts) -> tuple[int, ...]:
    """Return the shape of one sample's activations."""
    client = parts.clients[0].model if parts.clients else blank_parts(parts.info)[0]
    with torch.no_grad():
        at_cut = client.eval()(torch.zeros(1, *parts.info.input_shape, dtype=parts.info.dtype))
    return tuple(at_cut.shape[1:])


def whole(stream: Iterator[bytes], header: wire.Tensor, spec: TensorSpec) -> Tensor:
    """Return the tensor that was announced, from the parts that follow."""
    assembler = Assembler()
    tensor = assembler.start(header, spec)
    while tensor is None:
        try:
            data = next(stream)
        except (StopIteration, grpc.RpcError):
            raise WireError(wire.STOPPED, "the stream ended before all activations were there") from None
        part = deserialize(wire.FromPredictor, data)
        if not isinstance(part, memoryview):
            raise WireError(wire.MALFORMED, "something else where a part of a tensor is due")
        tensor = assembler.add(part)
    return tensor


def serve_inference(
    service: InferenceService, address: str, credentials: grpc.ServerCredentials | None, *, streams: int
) -> Serving:
    """Start serving a model on an address."""
    return Serving(INFERENCE, "Predict", service.predict, address, streams, credentials)
