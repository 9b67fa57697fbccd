"""A server-side model that is elsewhere: a module whose forward asks a `gapsl serve-model`."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import grpc
import torch
from torch import Tensor, nn

from gapsl import __version__
from gapsl.common.errors import InputError, Unavailable
from gapsl.inference.split_model import TrainedParts, blank_parts
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import INFERENCE, PROTOCOL, Backoff, open_channel
from gapsl.network.protocol.codec import WIRE_DTYPES, describe
from gapsl.network.protocol.errors import WireError, why_failed
from gapsl.network.protocol.framing import TensorSpec, framed, received, serialize
from gapsl.network.protocol.settings import check_names
from gapsl.network.tls.credentials import check_address, choose_security, device_credentials

log = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds that a busy or absent server is asked again
QUIET = 2.0  # of them, before anything is said about it
PASSING = {wire.TOO_OFTEN, wire.STOPPED, wire.EXPIRED}  # refusals that another attempt may not meet

Outgoing = wire.FromPredictor | memoryview


class RemoteServerModel(nn.Module):
    """Sends activations to the server-side model, and returns what it makes of them."""

    def __init__(
        self,
        parts: TrainedParts,
        address: str,
        name: str,
        credentials: grpc.ChannelCredentials | None,
        *,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__()
        self.address, self._name, self._patience = address, name, patience
        self._plain = credentials is None
        self._fingerprint, self._run = parts.info.fingerprint(), parts.run
        self._outputs, self._dtype = output_shape(parts), parts.info.dtype
        self._channel = open_channel(address, credentials)
        self._predict: grpc.StreamStreamMultiCallable[Outgoing, bytes] = self._channel.stream_stream(
            f"/{INFERENCE}/Predict", request_serializer=serialize
        )

    def forward(self, activations: Tensor) -> Tensor:
        """Return the outputs of the server-side model for a batch."""
        backoff, begun, told = Backoff(0.05, 2.0), time.monotonic(), False
        while True:
            try:
                return self._asked(activations)
            except grpc.RpcError as error:
                why = why_failed(error, plain=self._plain)
            except WireError as error:
                if error.reason not in PASSING:
                    raise InputError(f"{self.address} refuses this: {error}") from None
                why = str(error)
            waited = time.monotonic() - begun
            if waited > self._patience:
                raise Unavailable(f"no answer from {self.address}: {why}")
            if waited > QUIET and not told:  # who waits for half a minute wants to know what for
                told = True
                log.warning("%s: %s; asking again for up to %.0f s", self.address, why, self._patience)
            backoff.wait()

    def _asked(self, activations: Tensor) -> Tensor:
        header, payload = describe(activations, wire.PLAIN)
        question = wire.Question(
            protocol=PROTOCOL,
            version=__version__,
            name=self._name,
            model=self._fingerprint,
            run=self._run,
            activations=header,
        )
        spec = TensorSpec(WIRE_DTYPES[self._dtype], (len(activations), *self._outputs))

        def announced(message: wire.ToPredictor) -> tuple[wire.Tensor, TensorSpec] | None:
            if message.WhichOneof("message") == "refusal":
                return None
            return message.answer.outputs, spec

        call = self._predict(framed(wire.FromPredictor(question=question), payload))
        try:
            for message, outputs in received(wire.ToPredictor, iter(call), announced):
                if outputs is None:
                    raise WireError(message.refusal.reason, message.refusal.message)
                return outputs
        finally:
            call.cancel()
        raise WireError(wire.STOPPED, "the stream ended without an answer")


def output_shape(parts: TrainedParts) -> tuple[int, ...]:
    """Return the shape of one sample behind the server-side model."""
    if parts.info.labels == "server":
        return (len(parts.info.classes),)
    _, server, _ = blank_parts(parts.info)
    with torch.no_grad():
        at_cut = parts.clients[0].model(torch.zeros(1, *parts.info.input_shape, dtype=parts.info.dtype))
        return tuple(server.eval()(at_cut).shape[1:])


def with_remote_server(
    parts: TrainedParts, address: str, name: str, *, certs: Path | None = None, insecure: bool = False
) -> TrainedParts:
    """Return a device's part together with the server-side model at an address."""
    if not parts.clients:
        raise InputError(
            "this is a server's part; give a device's state, or an export with a client-side model"
        )
    check_address(address)
    (one,) = check_names((name,))
    folder = choose_security(address, certs, insecure)
    credentials = None if folder is None else device_credentials(folder, one)
    return replace(parts, server=RemoteServerModel(parts, address, one, credentials))
