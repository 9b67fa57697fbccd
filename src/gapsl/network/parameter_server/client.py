"""A device's visit to the parameter server: it brings its client-side model, and takes the mean home."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import grpc
from torch import Tensor

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PARAMETERS, PROTOCOL, Backoff, open_channel
from gapsl.network.protocol.codec import WIRE_DTYPES, describe
from gapsl.network.protocol.errors import WireError, why_failed
from gapsl.network.protocol.framing import TensorSpec, framed, received, serialize

Model = Mapping[str, Tensor]
Outgoing = wire.FromParameterClient | memoryview
PAUSE, LONGEST = 0.2, 5.0  # seconds between attempts, at first and at most
TELL_SECONDS = 10.0  # between two words about attempts that fail


class TurnedAway(WireError):
    """The parameter server does not want this device, however often it comes."""


@dataclass(frozen=True)
class ParameterClient:
    """Who visits, and where."""

    name: str
    address: str
    credentials: grpc.ChannelCredentials | None = None
    tell: Callable[[str], None] = lambda text: None

    def share(
        self, welcome: wire.Welcome, share: wire.Share, model: Model, wanted: Callable[[], bool]
    ) -> dict[str, Tensor]:
        """Bring the model, and return the mean if it is fetched; tries again as long as it is wanted."""
        backoff, told = Backoff(PAUSE, LONGEST), -TELL_SECONDS
        while wanted():
            try:
                return self._visit(welcome, share, model, wanted)
            except grpc.RpcError as error:
                why = why_failed(error, plain=self.credentials is None)
            except TurnedAway as error:
                raise TurnedAway(error.reason, f"the parameter server {self.address}: {error}") from None
            except WireError as error:
                why = str(error)
            if wanted() and time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                self.tell(
                    f"cannot share the client-side model at the parameter server {self.address} ({why}); "
                    "trying on"
                )
            backoff.wait()
        raise WireError(wire.STOPPED, "the server has gone while client-side models were shared")

    def _visit(
        self, welcome: wire.Welcome, share: wire.Share, model: Model, wanted: Callable[[], bool]
    ) -> dict[str, Tensor]:
        with open_channel(self.address, self.credentials) as channel:
            method: grpc.StreamStreamMultiCallable[Outgoing, bytes] = channel.stream_stream(
                f"/{PARAMETERS}/Share", request_serializer=serialize
            )
            call = method(self._brought(welcome, share, model))
            over = threading.Event()
            threading.Thread(target=cancel_unless, args=(call, wanted, over), daemon=True).start()
            try:
                mean = taken(call, model)
            finally:
                over.set()
                call.cancel()
        if share.fetch and mean.keys() != model.keys():
            raise WireError(wire.MALFORMED, f"the mean has {len(mean)} of the model's {len(model)} tensors")
        return mean if share.fetch else {}

    def _brought(self, welcome: wire.Welcome, share: wire.Share, model: Model) -> Iterator[Outgoing]:
        brought = model if welcome.device in share.weights else {}
        yield wire.FromParameterClient(
            announce=wire.Announce(
                protocol=PROTOCOL,
                name=self.name,
                device=welcome.device,
                run=welcome.run,
                transfer=share.transfer,
                weights=share.weights,
                tensors=len(brought),
                fetch=share.fetch,
            )
        )
        for name, tensor in brought.items():
            header, data = describe(tensor, wire.PLAIN)
            yield from framed(wire.FromParameterClient(named=wire.Named(name=name, tensor=header)), data)


def taken(answers: Iterator[bytes], model: Model) -> dict[str, Tensor]:
    """Return the mean that the parameter server sends; its tensors are like those of the model."""

    def announced(message: wire.ToParameterClient) -> tuple[wire.Tensor, TensorSpec] | None:
        if message.WhichOneof("message") in ("refusal", "finished"):
            return None
        tensor = model.get(message.named.name)
        if tensor is None:
            raise WireError(wire.MALFORMED, "the mean has a tensor that the model does not have")
        return message.named.tensor, TensorSpec(WIRE_DTYPES[tensor.dtype], tuple(tensor.shape))

    found: dict[str, Tensor] = {}
    for message, tensor in received(wire.ToParameterClient, answers, announced):
        if tensor is not None:
            found[message.named.name] = tensor
        elif message.HasField("finished"):
            return found
        else:
            reason = message.refusal.reason
            raise (WireError if reason == wire.STOPPED else TurnedAway)(reason, message.refusal.message)
    raise WireError(wire.STOPPED, "the parameter server closed the stream")


def cancel_unless(call: grpc.Call, wanted: Callable[[], bool], over: threading.Event) -> None:
    """Cancel a call that waits for others as soon as nobody wants its result any more."""
    while not over.wait(PAUSE):
        if not wanted():
            call.cancel()
