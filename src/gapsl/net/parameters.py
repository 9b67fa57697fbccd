"""The parameter server: averages client-side models, and passes them on. The main server never sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import grpc
from torch import Tensor

from gapsl.errors import InputError
from gapsl.net import wire_pb2 as wire
from gapsl.net.codec import DTYPES, describe
from gapsl.net.errors import WireError
from gapsl.net.framing import Assembler, Expected, parts
from gapsl.net.messages import deserialize, serialize
from gapsl.net.roster import check_protocol, listed
from gapsl.net.service import Identify, Serving
from gapsl.net.transfers import Transfers

METHOD = "gapsl.v1.Parameters"
MOST_TENSORS = 100_000

Outgoing = wire.ToHolder | memoryview


@dataclass(frozen=True)
class ParameterService:
    """Serves the devices of any run that are listed."""

    names: tuple[str, ...]
    transfers: Transfers
    largest: int  # bytes of a half
    identify: Identify = lambda context: None

    def share(self, stream: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Outgoing]:
        """Take a device's half, and give it the mean if it waits for it."""
        try:
            yield from self._shared(stream, context)
        except WireError as error:
            yield wire.ToHolder(refusal=wire.Refusal(reason=error.reason, message=str(error)))
        except InputError as error:
            yield wire.ToHolder(refusal=wire.Refusal(reason=wire.STOPPED, message=str(error)))

    def _shared(self, stream: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Outgoing]:
        announce = announced(stream)
        check_protocol(announce.protocol, "")
        device = listed(announce.name, self.names, self.identify(context))
        if device != announce.device:
            raise WireError(wire.IDENTITY, f"{announce.name!r} is device {device}, not {announce.device}")
        strangers = [number for number in announce.weights if not 0 <= number < len(self.names)]
        if strangers:
            raise WireError(wire.MALFORMED, f"weights of devices {strangers[:5]}, which are not listed here")
        transfer = self.transfers.open(announce.run, announce.transfer, announce.weights)
        if device in announce.weights:
            self.transfers.add(transfer, device, received(stream, announce.tensors, self.largest))
        mean = self.transfers.mean(transfer, context.is_active) if announce.fetch else {}
        if mean is not None:  # else the one who waited has gone
            yield from sent(mean)
            yield wire.ToHolder(finished=wire.Finished(tensors=len(mean)))


def announced(stream: Iterator[bytes]) -> wire.Announce:
    """Return the message that every stream begins with."""
    try:
        message = deserialize(wire.FromHolder, next(stream))
    except (StopIteration, grpc.RpcError):
        raise WireError(wire.MALFORMED, "the stream ended before it said what it is about") from None
    if isinstance(message, memoryview) or message.WhichOneof("message") != "announce":
        raise WireError(wire.MALFORMED, "a stream begins with announce")
    return message.announce


def received(stream: Iterator[bytes], count: int, largest: int) -> dict[str, Tensor]:
    """Return the tensors that a device sends, by name, within what a half may have."""
    if not 0 < count <= MOST_TENSORS:
        raise WireError(wire.TOO_MUCH, f"a half of {count} tensors")
    found: dict[str, Tensor] = {}
    assembler, name, left = Assembler(), "", largest
    try:
        for data in stream:
            message = deserialize(wire.FromHolder, data)
            if isinstance(message, memoryview):
                tensor = assembler.add(message)
            elif message.WhichOneof("message") != "named" or assembler.waiting:
                raise WireError(wire.MALFORMED, "something else where a tensor is due")
            else:
                name = message.named.name
                left -= message.named.tensor.bytes
                if left < 0 or not name or name in found:
                    raise WireError(wire.TOO_MUCH, f"a half of more than {largest} bytes, or {name!r} again")
                tensor = assembler.start(message.named.tensor, whatever(message.named.tensor))
            if tensor is not None:
                found[name] = tensor
            if len(found) == count:
                return found
    except grpc.RpcError:
        pass
    raise WireError(wire.MALFORMED, f"the stream ended after {len(found)} of {count} tensors")


def whatever(header: wire.Tensor) -> Expected:
    """Expect what a tensor says of itself: its size is limited elsewhere."""
    if header.dtype not in DTYPES:
        raise WireError(wire.MALFORMED, f"dtype {header.dtype} is unknown")
    return Expected(header.dtype, tuple(header.shape))


def sent(half: Mapping[str, Tensor]) -> Iterator[Outgoing]:
    """Yield the messages and parts of a half."""
    for name, tensor in half.items():
        header, data = describe(tensor, wire.PLAIN)
        yield wire.ToHolder(named=wire.Named(name=name, tensor=header))
        yield from parts(data)


def serve_parameters(
    service: ParameterService, address: str, credentials: grpc.ServerCredentials | None
) -> Serving:
    """Start the parameter server on an address."""
    share: grpc.RpcMethodHandler[bytes, Outgoing] = grpc.stream_stream_rpc_method_handler(
        service.share, response_serializer=serialize
    )
    handlers = grpc.method_handlers_generic_handler(METHOD, {"Share": share})
    return Serving(METHOD, handlers, address, len(service.names), credentials)
