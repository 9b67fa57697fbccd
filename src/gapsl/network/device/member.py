"""A device in a run over the network: what it makes of each command. It knows no stream."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from gapsl.common.clock import timed
from gapsl.common.errors import InputError
from gapsl.device.device import Device
from gapsl.device.exchange import Exchange, Reply, Upload
from gapsl.device.label_private import LabelPrivateDevice
from gapsl.models.part import weights_of
from gapsl.network.device.device_data import DeviceData
from gapsl.network.device.store import Store
from gapsl.network.parameter_server.client import ParameterClient
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import TensorSpec, framed

Outgoing = wire.FromDevice | memoryview
# Random generators of torch are global, so the devices of one process compute one after another.
COMPUTING = threading.Lock()


class Member:
    """A device's state between commands; it outlives a broken link."""

    def __init__(
        self,
        data: DeviceData,
        store: Store,
        welcome: wire.Welcome,
        client: ParameterClient | None = None,
        *,
        fresh: bool = False,
    ) -> None:
        self.fresh = fresh  # it asks to begin from the start, however far the run is
        self.total_rounds = 0  # not known before it begins
        self.data, self.store, self.welcome, self.parameter_client = data, store, welcome, client
        self.device: Device | None = None
        self.generation = 0
        self.position = (0, 0)  # the last round and turn
        self._lent: dict[str, Tensor] = {}  # the mean of client-side models, for one evaluation
        self._sent: Upload | None = None  # waits for its reply
        self._spent: dict[str, float] = {}  # seconds since that upload, by field of the next, and
        self._said: dict[str, float] = {}  # what it said of them itself

    def ready(self) -> wire.FromDevice:
        """Return what the device has and can go on from."""
        info = self.data.info
        return wire.FromDevice(
            ready=wire.Ready(
                samples=info.samples,
                label_counts=[] if self.welcome.features else info.label_counts,
                batches_per_pass=info.batches_per_pass,
                stored=self.store.stored(),
                generation=self.generation,
                round=self.position[0],
                turn=self.position[1],
                waiting=self._sent is not None,
                test_samples=self.data.test_samples,
                fresh=self.fresh,
            )
        )

    def carry_out(
        self, command: wire.ToDevice, tensor: Tensor | None, wanted: Callable[[], bool] = lambda: True
    ) -> Iterator[Outgoing]:
        """Do what the server asks for, as long as it is wanted, and yield the answer."""
        kind = command.WhichOneof("message")
        if kind == "begin":
            yield from self._begin(command.begin)
        elif self.device is None:
            raise WireError(wire.MALFORMED, f"{kind} before begin")
        elif kind == "forward":
            yield from self._forward(self.device, command.forward)
        elif kind == "backward":
            self._backward(self.device, command.backward, tensor)
        elif kind == "save":
            self.store.write(command.save.round, self.generation, self.device.tensors())
            self.fresh = False
            yield wire.FromDevice(done=wire.Done())
        elif kind == "share":
            yield self._share(self.device, command.share, wanted)
        elif kind == "evaluate":
            yield from self._evaluate(self.device, command.evaluate, tensor)
        elif kind == "head":
            yield from self._head(self.device, command.head, tensor)
        elif kind == "ask":
            yield wire.FromDevice(status=wire.Status(drift=self.device.drift(), sha256=self.device.digest()))
        else:
            raise WireError(wire.MALFORMED, f"{kind or 'an unknown command'} is not understood")

    def announced(self, command: wire.ToDevice) -> tuple[wire.Tensor, TensorSpec] | None:
        """Return what announces the tensor of a command that has one, and what it must be."""
        kind = command.WhichOneof("message")
        if kind == "backward" and command.backward.HasField("gradient"):
            header = command.backward.gradient
        elif kind == "evaluate" and command.evaluate.HasField("inputs"):
            header = command.evaluate.inputs
        elif kind == "head":
            header = command.head.features
        else:
            return None
        if self.device is None:
            raise WireError(wire.MALFORMED, "a tensor before begin")
        cut = () if self._sent is None else tuple(self._sent.activations.shape[1:])
        contract = TensorContract.of(self.welcome, self.data.config, cut)
        if kind == "evaluate":
            return header, contract.evaluation_inputs()
        if kind == "head":
            return header, contract.head_features(command.head.what)
        if self._sent is None:
            raise WireError(wire.MALFORMED, "a gradient that was not asked for")
        return header, contract.gradient(self._sent.rows)

    def _begin(self, begin: wire.Begin) -> Iterator[Outgoing]:
        with COMPUTING:
            device = self.data.device(begin.total_rounds)
        if begin.round:
            device.load(self.store.read(begin.round, device.where))
        self.device, self.generation = device, begin.generation
        self.total_rounds = begin.total_rounds
        self.position, self._sent, self._spent = (begin.round, 0), None, {}
        self.store.forget_after(begin.round)
        yield wire.FromDevice(done=wire.Done())

    def _forward(self, device: Device, command: wire.Forward) -> Iterator[Outgoing]:
        asked = (command.round, command.turn)
        if self._sent is None or self.position != asked:  # else the link broke before the server had it all
            with COMPUTING, timed(self._spent, "forward_seconds"):
                exchange = Exchange((device.id,), command.turn, command.learn, proposes=command.proposes)
                self._sent = device.answer(command.round, exchange)
            self.position, self._said, self._spent = asked, self._spent, {}
        activations, labels = self._sent.pack()
        header, payload = describe(activations, self.welcome.activations, self.welcome.compression)
        sent = wire.Upload(
            round=asked[0], turn=asked[1], activations=header, labels=labels.tolist(), **self._said
        )
        yield from framed(wire.FromDevice(upload=sent), payload)

    def _backward(self, device: Device, command: wire.Backward, gradient: Tensor | None) -> None:
        if self._sent is None or self.position != (command.round, command.turn):
            return  # the reply was sent again, in case it had been lost
        sent, self._sent = self._sent, None
        if command.late:
            device.forget()
            return
        if gradient is None:
            gradient = torch.zeros_like(sent.pack()[0])
        reply = Reply.unpack(gradient.to(sent.activations), command.step, sent.rows - len(sent.activations))
        with COMPUTING, timed(self._spent, "backward_seconds"):
            device.backward(command.round, reply)

    def _share(self, device: Device, share: wire.Share, wanted: Callable[[], bool]) -> wire.FromDevice:
        if self.parameter_client is None:
            raise InputError("this run shares client-side models, but names no parameter server")
        model = device.part.model
        mean = self.parameter_client.share(self.welcome, share, weights_of(model), wanted)
        if share.keep:
            model.load_state_dict(mean)
        self._lent = mean
        return wire.FromDevice(done=wire.Done())

    def _head(self, device: Device, command: wire.Head, features: Tensor | None) -> Iterator[Outgoing]:
        if not isinstance(device, LabelPrivateDevice) or features is None:
            raise WireError(wire.MALFORMED, "this device has no head, or was sent nothing for it")
        payload: Sequence[memoryview] = ()
        with COMPUTING:
            if command.what == wire.Head.LOSS:
                loss, gradient = device.head_loss(features)
                header, payload = describe(gradient, self.welcome.gradients, self.welcome.compression)
                judged = wire.Judged(loss=loss, tensor=header)
            elif command.what == wire.Head.LOGITS:
                header, payload = describe(device.head_logits(features), wire.PLAIN)
                judged = wire.Judged(tensor=header)
            else:
                _, labels = self.data.inputs(wire.Evaluate.OWN, command.batch)
                assert labels is not None
                if len(labels) != len(features):
                    raise WireError(wire.MALFORMED, f"{len(features)} rows for {len(labels)} test samples")
                right = device.head_logits(features).argmax(dim=1).cpu() == labels
                judged = wire.Judged(right=int(right.sum()))
        yield from framed(wire.FromDevice(judged=judged), payload)

    def _evaluate(self, device: Device, command: wire.Evaluate, given: Tensor | None) -> Iterator[Outgoing]:
        if self.welcome.own_data and command.set != wire.Evaluate.OWN:
            inputs, labels = self.store.kept(command.set, command.batch, given), None
        else:
            inputs, labels = self.data.inputs(command.set, command.batch)
        model = device.part.model
        if command.shared:
            model = copy.deepcopy(model)
            model.load_state_dict(self._lent)
        model.eval()
        with COMPUTING, torch.no_grad():
            activations = model(device.placed(inputs))
        header, payload = describe(activations, self.welcome.activations, self.welcome.compression)
        told = [] if labels is None or self.welcome.features else labels.tolist()
        scored = wire.Scored(batch=command.batch, activations=header, labels=told)
        yield from framed(wire.FromDevice(scored=scored), payload)
