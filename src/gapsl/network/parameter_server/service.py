"""The parameter server: averages client-side models, and passes them on. The main server never sees them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain

import grpc
from torch import Tensor

from gapsl.network.parameter_server.store import RESERVED, Transfer, Transfers
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PARAMETERS
from gapsl.network.protocol.codec import DTYPES, LARGEST_RANK, describe
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import TensorSpec, framed, received
from gapsl.network.serving import Door, Identify, OpenStreams, Serving, check_protocol, listed, within

MOST_TENSORS = 10_000
LONGEST_NAME = 256
MOST_NUMBERS = 1 << 40  # in a tensor, as its shape has it
MOST_VISITS = 4  # of a device at once, in different runs
SILENCE_SECONDS = 60.0  # without a part sent or taken, after which a visit is ended

Outgoing = wire.ToParameterClient | memoryview


@dataclass
class Link:
    """A device's stream. Where it does not move, it is ended: it would keep one of the server's threads."""

    stream: Iterator[bytes]
    context: grpc.ServicerContext
    tell: Callable[[str], None]
    who: str

    def heard(self, seconds: float) -> Iterator[bytes]:
        """Yield what the device says, as long as it says something every so many seconds."""
        while True:
            with self.moving(seconds):
                data = next(self.stream, None)
            if data is None:
                return
            yield data

    def moving(self, seconds: float) -> AbstractContextManager[None]:
        """End the stream if what is done meanwhile takes longer."""
        return within(seconds, partial(self._end, seconds))

    def _end(self, seconds: float) -> None:
        self.tell(f"{self.who}: nothing has moved for {seconds:g} s, the link is ended")
        self.context.cancel()


class ParameterService:
    """Serves the devices of any run that are listed."""

    def __init__(
        self,
        names: tuple[str, ...],
        transfers: Transfers,
        largest: int,
        identify: Identify = lambda context: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.names, self._transfers, self._tell = names, transfers, tell
        self._largest = largest  # bytes of a client-side model
        self._visits = OpenStreams(MOST_VISITS)  # one at a time in a run
        self._door = Door(wire.FromParameterClient, "announce", wire.ToParameterClient, identify, tell)

    def share(self, stream: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Outgoing]:
        """Take a device's client-side model, and give it the mean if it waits for it."""
        return self._door.served(stream, context, partial(self._visited, stream, context))

    def _admitted(self, announce: wire.Announce, context: grpc.ServicerContext) -> tuple[int, Transfer]:
        """Return who comes, and for what; refuse whoever is not what it says."""
        check_protocol(announce.protocol, "")
        device = listed(announce.name, self.names, self._door.identify(context))
        if device != announce.device:
            raise WireError(
                wire.IDENTITY,
                f"{announce.name!r} is device {device} here and {announce.device} at the server; list the "
                "parameter server's --names in the server's order",
            )
        strangers = [number for number in announce.weights if not 0 <= number < len(self.names)]
        if strangers:
            raise WireError(wire.MALFORMED, f"weights of devices {strangers[:5]}, which are not listed here")
        return device, self._transfers.open(announce.run, announce.transfer, announce.weights)

    def _visited(
        self, stream: Iterator[bytes], context: grpc.ServicerContext, announce: wire.Announce
    ) -> Iterator[Outgoing]:
        link = Link(stream, context, self._tell, repr(announce.name[:100]))
        device, transfer = self._admitted(announce, context)
        self._tell(f"{transfer}: {link.who} connected")
        with self._visits.of(device, context, announce.run):
            if announce.device in announce.weights:
                model = brought(link.heard(SILENCE_SECONDS), announce.tensors, self._largest)
                self._transfers.add(transfer, announce.device, model)
            mean = self._transfers.mean(transfer, context.is_active) if announce.fetch else {}
            if mean is None:
                return  # the one who waited has gone
            finished = wire.ToParameterClient(finished=wire.Finished(tensors=len(mean)))
            for message in chain(sent(mean), (finished,)):
                with link.moving(SILENCE_SECONDS):  # which ends when gRPC has sent it and asks for the next
                    yield message


def brought(stream: Iterator[bytes], count: int, largest: int) -> dict[str, Tensor]:
    """Return the tensors that a device sends, by name, within what a client-side model may have."""
    if not 0 < count <= MOST_TENSORS:
        raise WireError(wire.TOO_MUCH, f"a client-side model of {count} tensors")
    found: dict[str, Tensor] = {}
    left = largest

    def announced(message: wire.FromParameterClient) -> tuple[wire.Tensor, TensorSpec]:
        nonlocal left
        if not message.HasField("named"):
            raise WireError(wire.MALFORMED, "something else where a tensor is due")
        name, header = message.named.name, message.named.tensor
        if not 0 < len(name) <= LONGEST_NAME or name == RESERVED or name in found:
            raise WireError(wire.MALFORMED, f"{name[:LONGEST_NAME]!r} is no name of another tensor")
        left -= header.bytes + len(name.encode())
        if left < 0:
            raise WireError(wire.TOO_MUCH, f"a client-side model of more than {largest} bytes")
        return header, whatever(header)

    try:
        for message, tensor in received(wire.FromParameterClient, stream, announced):
            assert tensor is not None
            found[message.named.name] = tensor
            if len(found) == count:
                return found
    except grpc.RpcError:
        pass
    # A link that broke is no fault of the device's: it may come again.
    raise WireError(wire.STOPPED, f"the stream ended after {len(found)} of {count} tensors")


def whatever(header: wire.Tensor) -> TensorSpec:
    """Expect what a tensor says of itself: its size is limited elsewhere."""
    if header.dtype not in DTYPES:
        raise WireError(wire.MALFORMED, f"dtype {header.dtype} is unknown")
    shape = header.shape
    # Of a tensor without numbers the other dimensions may be anything, and so too much to multiply.
    possible = len(shape) <= LARGEST_RANK and math.prod(max(size, 1) for size in shape) <= MOST_NUMBERS
    if not possible or min(shape, default=0) < 0:
        raise WireError(wire.MALFORMED, f"a tensor of {len(header.shape)} dimensions that cannot be")
    return TensorSpec(header.dtype, tuple(header.shape))


def sent(model: Mapping[str, Tensor]) -> Iterator[Outgoing]:
    """Yield the messages and parts of a client-side model."""
    for name, tensor in model.items():
        header, data = describe(tensor, wire.PLAIN)
        yield from framed(wire.ToParameterClient(named=wire.Named(name=name, tensor=header)), data)


def serve_parameters(
    service: ParameterService, address: str, credentials: grpc.ServerCredentials | None
) -> Serving:
    """Start the parameter server on an address."""
    streams = MOST_VISITS * len(service.names)
    return Serving(PARAMETERS, "Share", service.share, address, streams, credentials)
