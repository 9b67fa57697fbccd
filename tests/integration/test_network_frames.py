"""Devices that behave for a while, and then do not: whatever they say instead, the run goes on.

Frames that are wrong from their first byte are in test_network_security.py. Here somebody visits a server in
a real process and does all that a device does, with the device's own code, up to some answer; that one has a
mistake in it.
"""

from __future__ import annotations

import queue
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from faults import JOINS
from fleet import SERVER, Fleet
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from network import channel_to, hello
from processes import Launcher, memory_of, records_of, rounds_done, weights_of

from gapsl.network.device.device_data import DeviceData, load_device_data
from gapsl.network.device.member import Member
from gapsl.network.device.store import Store
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.framing import received, serialize

LAST = "device-2"  # the one that visitors say they are
GROWTH = 24 << 20  # bytes that the server's memory may grow by; mistakes announce up to 2**63
# An evaluation and a checkpoint after every round, so that each kind of answer is due early; more rounds than
# any visitor stays for.
WORDS: dict[str, Any] = {"model": "mlp", "norm": "none", "evaluate_every": 1, "checkpoint_every": 1}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "psl": {**WORDS, "method": "psl", "rounds": 8},
    "labels on the device": {**WORDS, "method": "psl", "labels": "device", "rounds": 8},
}
KINDS = {
    "psl": {"ready", "done", "upload", "scored", "status"},
    "labels on the device": {"ready", "done", "upload", "scored", "status", "judged"},
}

Frame = wire.FromDevice | memoryview


# --- mistakes

NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 7, 2**31 - 1])
LARGE = st.sampled_from([-(2**63), -1, 0, 1, 3, 8, 300, 2**31, 2**40, 2**63 - 1])
FLOATS = st.sampled_from([float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308])
OTHER_WORDS = st.sampled_from(
    [
        wire.FromDevice(hello=wire.Hello(protocol=1, name=LAST)),
        wire.FromDevice(ready=wire.Ready(samples=1, label_counts=[1], batches_per_pass=1)),
        wire.FromDevice(upload=wire.Upload(round=1)),
        wire.FromDevice(scored=wire.Scored(batch=1)),
        wire.FromDevice(done=wire.Done()),
        wire.FromDevice(heard=wire.Heard()),
        wire.FromDevice(status=wire.Status(sha256="0")),
        wire.FromDevice(judged=wire.Judged(loss=1.0)),
        wire.FromDevice(failed=wire.Failed(reason="no battery " * 100)),
        wire.FromDevice(),
    ]
)


@dataclass(frozen=True)
class Mistake:
    """What is wrong with an answer: one of the ways below, with a number or a float to go by."""

    way: str
    number: int
    large: int
    float: float
    other: wire.FromDevice
    data: bytes

    def in_(self, answer: Sequence[Frame]) -> Iterator[bytes]:
        """Return the frames of an answer with this mistake in it."""
        first, *parts = answer
        assert isinstance(first, wire.FromDevice)
        message = wire.FromDevice.FromString(first.SerializeToString())
        body = getattr(message, message.WhichOneof("message") or "")
        tensor = tensor_of(message)
        data = b"".join(part for part in parts if isinstance(part, memoryview))
        if self.way == "another word":
            message = self.other
        elif self.way == "no message":
            yield self.data
            return
        elif self.way == "fields":
            self._spoil(body)
        elif self.way == "twice":
            yield serialize(message)
        elif tensor is None:
            yield serialize(memoryview(self.data or b"\0"))
        elif self.way == "size":
            tensor.shape[abs(self.number) % len(tensor.shape)] = self.large
        elif self.way == "rows":
            # A whole tensor, but of more or fewer samples than were asked for.
            row, rows = len(data) // max(1, tensor.shape[0]), abs(self.number) % 12
            labels = [*body.labels, *[0] * rows][:rows] if hasattr(body, "labels") and body.labels else []
            tensor.shape[0], tensor.bytes, data = rows, row * rows, (data * 12)[: row * rows]
            if hasattr(body, "labels"):
                body.labels[:] = labels
        elif self.way == "dimensions":
            tensor.shape.append(1) if self.number % 2 else tensor.shape.pop()
        elif self.way == "dtype":
            tensor.dtype = wire.Dtype.ValueType(abs(self.number) % 5)
        elif self.way == "codec":
            tensor.codec = wire.Codec.ValueType(abs(self.number) % 6)
        elif self.way == "compression":
            tensor.compression = wire.Compression.ValueType(abs(self.number) % 3)
        elif self.way == "announced bytes":
            tensor.bytes = self.large
        elif self.way == "content":  # not a number; what is finite and wrong nobody can tell
            data = b"\xff" * tensor.bytes
        elif self.way == "too little":
            data = data[: len(data) // 2]
        elif self.way == "too much":
            data += b"\0" * 7
        yield serialize(message)
        for start in range(0, len(data), 512):
            yield serialize(memoryview(data[start : start + 512]))
        if self.way in ("twice", "too little"):
            yield serialize(self.other)

    def _spoil(self, body: Any) -> None:
        """Change every field that is not a tensor."""
        for name, value in {
            "round": self.number, "turn": self.number, "batch": self.number, "test_samples": self.large,
            "drift": self.float, "sha256": "x" * 300, "loss": self.float, "samples": self.number,
            "right": self.number, "batches_per_pass": self.large,
        }.items():  # fmt: skip
            if hasattr(body, name) and (self.large + len(name)) % 3:  # not always all of them
                setattr(body, name, value)
        for name in ("labels", "label_counts"):
            if getattr(body, name, None):
                getattr(body, name)[0] = self.number


WAYS = (
    "another word", "no message", "fields", "fields", "twice", "size", "rows", "dimensions", "dtype", "codec",
    "compression", "announced bytes", "content", "too little", "too much",
)  # fmt: skip
MISTAKES = st.builds(
    Mistake, st.sampled_from(WAYS), NUMBERS, LARGE, FLOATS, OTHER_WORDS, st.binary(max_size=16)
)


@dataclass(frozen=True)
class Scores:
    """Scores of other samples than those that were asked for."""

    rows: int

    def in_(self, answer: Sequence[Frame]) -> Iterator[bytes]:
        """Return the frames of the answer to a request for scores."""
        first, *parts = answer
        assert isinstance(first, wire.FromDevice) and first.HasField("scored")
        data, tensor = (
            b"".join(part for part in parts if isinstance(part, memoryview)),
            first.scored.activations,
        )
        row = len(data) // tensor.shape[0]
        tensor.shape[0], tensor.bytes = self.rows, row * self.rows
        yield serialize(first)
        yield serialize(memoryview((data * 5)[: row * self.rows]))


def tensor_of(message: wire.FromDevice) -> wire.Tensor | None:
    kind = message.WhichOneof("message")
    if kind in ("upload", "scored"):
        return getattr(message, kind).activations  # type: ignore[no-any-return]
    if kind == "judged" and message.judged.HasField("tensor"):
        return message.judged.tensor
    return None


# --- visits


@dataclass
class Visitors:
    """Those who say they are the last device, one after another; what became of them."""

    port: int
    folder: Path
    frames: int = 0  # answers with a mistake
    kinds: Counter[str] = field(default_factory=Counter)  # what should have been said instead
    reasons: Counter[str] = field(default_factory=Counter)  # why they were refused
    _data: DeviceData | None = None

    def visit(self, channel: grpc.Channel, proper: int, mistakes: Sequence[Mistake | Scores]) -> None:
        """Answer so many times as a device does, then with mistakes, then leave."""
        words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        words.put(serialize(hello(LAST)))
        call = channel.stream_stream("/gapsl.v1.Training/Join")(iter(words.get, None), timeout=120)
        due = list(mistakes)
        for kind, answer in self._answers(iter(call)):
            if proper > 0:
                proper -= 1
                for frame in answer:
                    words.put(serialize(frame))
            elif due:
                self.frames += 1
                self.kinds[kind] += 1
                for data in due.pop(0).in_(answer):
                    words.put(data)
            if proper == 0 and not due:
                break
        words.put(None)
        for data in call:  # to the end: then the server knows that it has gone
            self._note(wire.ToDevice.FromString(data))

    def _answers(self, stream: Iterator[bytes]) -> Iterator[tuple[str, list[Frame]]]:
        """Yield the answers that a device gives, and what each is."""
        member: Member | None = None

        def heard() -> Iterator[bytes]:
            for data in stream:
                self._note(wire.ToDevice.FromString(data))
                yield data

        def announced(command: wire.ToDevice) -> Any:
            return None if member is None else member.announced(command)

        try:
            for command, tensor in received(wire.ToDevice, heard(), announced):
                kind = command.WhichOneof("message")
                if kind == "welcome":
                    member = self._member(command.welcome)
                    answer: list[Frame] = [member.ready()]
                elif kind in ("refusal", "goodbye") or member is None:
                    return
                else:
                    answer = list(member.carry_out(command, tensor))
                if answer:
                    first = answer[0]
                    assert isinstance(first, wire.FromDevice)
                    yield str(first.WhichOneof("message")), answer
        except (ValueError, IndexError, AssertionError):
            return  # what it is asked makes no sense any more, after what it has said

    def _member(self, welcome: wire.Welcome) -> Member:
        self._data = self._data or load_device_data(welcome)
        shutil.rmtree(self.folder, ignore_errors=True)  # it has no past
        return Member(self._data, Store(self.folder), welcome, fresh=True)

    def _note(self, message: wire.ToDevice) -> None:
        if message.WhichOneof("message") == "refusal":
            assert 0 < len(message.refusal.message) < 1000
            self.reasons[wire.Reason.Name(message.refusal.reason)] += 1


def two_of_three(fleet: Fleet) -> Visitors:
    """Start a fleet without its last device; returns those who come in its place."""
    fleet.environments[SERVER] = {JOINS: "1000000"}  # or most would meet no more than that limit
    fleet.start(*(name for name in fleet.names if name != LAST))
    for name in fleet.joining[:2]:
        fleet.until(lambda name=name: f"{name} connected" in fleet.server.stderr, f"{name} is there")  # type: ignore[misc]
    return Visitors(fleet.port, fleet.folder / "visitor")


def visited(fleet: Fleet, visits: int) -> tuple[Visitors, list[int]]:
    """Let visitors come while two devices are there; returns what became of them, and the server's memory."""
    visitors, memory = two_of_three(fleet), list[int]()
    with channel_to(fleet.port) as channel:

        @settings(
            max_examples=visits,
            derandomize=visits < 100,  # the short ones are the same each time
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.integers(0, 12), st.lists(MISTAKES, min_size=1, max_size=3))
        def misbehave(proper: int, mistakes: list[Mistake]) -> None:
            try:
                visitors.visit(channel, proper, mistakes)
            except grpc.RpcError:
                pytest.fail(f"the server has gone: {fleet.server.wait().stderr[-6000:]}")
            memory.append(memory_of(fleet.server.pid))

        misbehave()
    return visitors, memory


def told(configuration: str, visitors: Visitors, memory: Sequence[int], server: str) -> str:
    """Return what happened, for whoever reads it, and check that it was not too little."""
    missed = KINDS[configuration] - visitors.kinds.keys()
    assert len(missed) <= (1 if len(memory) < 100 else 0), f"no mistake in {missed}"
    assert visitors.kinds["ready"] < visitors.frames / 2, "a good share is wrong later than at the door"
    assert visitors.reasons["MALFORMED"] > len(memory) / 4, visitors.reasons
    assert "Traceback" not in server
    settled = memory[len(memory) // 5]  # what a server takes when it has seen everything once
    assert max(memory[len(memory) // 5 :]) - settled < GROWTH, f"{[size >> 20 for size in memory]} MiB"
    return (
        f"{configuration}: {len(memory)} visits, {visitors.frames} mistakes in {dict(visitors.kinds)}, "
        f"refused for {dict(visitors.reasons)}, memory {memory[0] >> 20} to {memory[-1] >> 20} MiB"
    )


def parametrised(few: Mapping[str, int], many: int) -> list[Any]:
    slow = [pytest.param(name, many, marks=pytest.mark.slow) for name in CONFIGURATIONS]
    return [*(pytest.param(name, visits) for name, visits in few.items()), *slow]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("configuration", "visits"), parametrised({"labels on the device": 30}, 1000))
def test_who_misbehaves_is_shown_out_and_the_others_end_with_the_right_weights(
    cli: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str], configuration: str, visits: int
) -> None:
    # Without checkpoints on the way: one who comes without what was stored with it is refused at the door.
    words = {**CONFIGURATIONS[configuration], "checkpoint_every": 1000}
    with Fleet(cli, tmp_path, words, patience=600) as fleet:
        visitors, memory = visited(fleet, visits)
        assert len(memory) >= visits, fleet.server.stderr[-2000:]
        with capsys.disabled():
            print("\n" + told(configuration, visitors, memory, fleet.server.stderr))
        fleet.start(LAST)
        fleet.finish()
        assert [r.round for r in records_of(fleet.run)] == list(range(1, fleet.words["rounds"] + 1))
        assert weights_of(fleet.run) == fleet.undisturbed()


@pytest.mark.slow
@pytest.mark.parametrize("scores", [Scores(59), Scores(61), Scores(0)], ids=str)
def test_who_scores_other_samples_than_were_asked_for_is_shown_out(
    cli: Launcher, tmp_path: Path, scores: Scores
) -> None:
    with Fleet(cli, tmp_path, CONFIGURATIONS["psl"], patience=600) as fleet:
        assert fleet.words["test_samples"] == 60
        visitors = two_of_three(fleet)
        with channel_to(fleet.port) as channel:
            visitors.visit(channel, 3, [scores])  # after ready, done and its activations
        assert visitors.kinds == {"scored": 1}
        assert visitors.reasons.total() == 1, "it is told that this is wrong"
        assert fleet.server.running, fleet.server.stderr
        fleet.start(LAST)
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_where_two_of_three_are_enough_they_train_on_meanwhile(
    cli: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str], configuration: str
) -> None:
    words = {**CONFIGURATIONS[configuration], "rounds": 2000}
    with Fleet(cli, tmp_path, words, closing="fraction:0.6", patience=600) as fleet:
        visitors, memory = visited(fleet, 300)
        assert len(memory) >= 300, fleet.server.stderr[-2000:]
        with capsys.disabled():
            print("\n" + told(configuration, visitors, memory, fleet.server.stderr))
        done = rounds_done(fleet.run)
        assert done > 5
        fleet.until_round(done + 3)  # and they still do
