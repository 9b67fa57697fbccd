"""A raw client that obeys the protocol and lies in what it sends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from network import channel_to, hello
from torch import Tensor

from gapsl.device.device import Device
from gapsl.device.exchange import Upload
from gapsl.network.device.device_data import DeviceData, load_device_data
from gapsl.network.device.member import COMPUTING
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.framing import framed, serialize

Lie = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # activations and labels


@dataclass(frozen=True)
class HeadLie:
    """What a device that has the labels says of a mini-batch: its loss, and how long its derivative is."""

    loss: float
    length: float


class Liar:
    """Takes part in a run in a thread; lies in the rounds named, and is honest in the others."""

    def __init__(
        self,
        port: int,
        name: str,
        lies: Mapping[int, Lie] | None = None,
        at_head: Mapping[int, HeadLie] | None = None,
        seconds: Mapping[int, float] | None = None,
    ) -> None:
        self._port, self._name, self._seconds = port, name, seconds or {}
        self._lies, self._at_head = lies or {}, at_head or {}
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._round = 0
        self.ended: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> str | None:
        """Wait for its end; returns the server's last word."""
        self._thread.join(30)
        return self.ended

    def _run(self) -> None:
        self._say([hello(self._name)])
        with channel_to(self._port) as channel:
            call = channel.stream_stream("/gapsl.v1.Training/Join")(iter(self._words.get, None), timeout=120)
            due, missing = None, 0  # what is to be answered when its tensor has come
            for data in call:
                command = wire.ToDevice.FromString(data)
                kind = command.WhichOneof("message")
                if kind == "part":
                    missing -= len(command.part.data)
                else:
                    due = command
                    missing = command.head.features.bytes if kind == "head" else 0
                if kind in ("goodbye", "refusal"):
                    self.ended = command.goodbye.reason or command.refusal.message
                    self._say([wire.FromDevice(heard=wire.Heard())])
                    self._words.put(None)
                elif due is not None and missing <= 0:
                    self._say(self._answer(due))
                    due = None

    def _say(self, words: Iterable[wire.FromDevice | memoryview]) -> None:
        for word in words:
            self._words.put(serialize(word))

    def _answer(self, command: wire.ToDevice) -> Iterable[wire.FromDevice | memoryview]:
        kind = command.WhichOneof("message")
        if kind == "welcome":
            self._welcome, self._data = command.welcome, load_device_data(command.welcome)
            return [ready(self._data, self._welcome)]
        if kind == "begin":
            with COMPUTING:
                self._device: Device = self._data.device(command.begin.total_rounds)
        if kind in ("begin", "save"):
            return [wire.FromDevice(done=wire.Done())]
        if kind == "ask":
            return [wire.FromDevice(status=wire.Status(drift=0.0, sha256="0" * 64))]
        if kind == "forward":
            return self._uploaded(command.forward)
        if kind == "evaluate":
            return self._scored(command.evaluate)
        return self._judged(command.head) if kind == "head" else []

    def _uploaded(self, asked: wire.Forward) -> Iterable[wire.FromDevice | memoryview]:
        self._round = asked.round
        with COMPUTING:
            upload: Upload = self._device.forward(asked.round, asked.turn, learn=asked.learn)
        self._device.forget()
        activations, labels = upload.pack()
        if asked.round in self._lies:
            activations, labels = self._lies[asked.round](activations, labels)
        header, payload = describe(activations, self._welcome.activations, self._welcome.compression)
        sent = wire.Upload(round=asked.round, turn=asked.turn, activations=header, labels=labels.tolist())
        sent.forward_seconds = sent.backward_seconds = self._seconds.get(asked.round, 0.0)
        return framed(wire.FromDevice(upload=sent), payload)

    def _scored(self, asked: wire.Evaluate) -> Iterable[wire.FromDevice | memoryview]:
        inputs, _ = self._data.inputs(asked.set, asked.batch)
        with COMPUTING, torch.no_grad():
            activations = self._device.part.model.eval()(inputs)
        header, payload = describe(activations, self._welcome.activations, self._welcome.compression)
        return framed(wire.FromDevice(scored=wire.Scored(batch=asked.batch, activations=header)), payload)

    def _judged(self, asked: wire.Head) -> Iterable[wire.FromDevice | memoryview]:
        shape = tuple(asked.features.shape)
        if asked.what == wire.Head.LOSS:
            lie = self._at_head.get(self._round, HeadLie(2.3, 0.01))
            derivative = torch.ones(shape)
            header, payload = describe(derivative * (lie.length / derivative.norm()), self._welcome.gradients)
            return framed(wire.FromDevice(judged=wire.Judged(loss=lie.loss, tensor=header)), payload)
        header, payload = describe(torch.zeros(shape[0], len(self._welcome.classes)), wire.PLAIN)
        return framed(wire.FromDevice(judged=wire.Judged(tensor=header)), payload)


def ready(data: DeviceData, welcome: wire.Welcome) -> wire.FromDevice:
    """Return what a device says of its data."""
    info = data.info
    counts = [] if welcome.features else info.label_counts
    said = wire.Ready(samples=info.samples, label_counts=counts, batches_per_pass=info.batches_per_pass)
    return wire.FromDevice(ready=said)
