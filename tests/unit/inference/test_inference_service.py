"""Split inference: the same outputs as in one place, and bad questions end themselves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import torch
from small_runs import run_of

import gapsl
from gapsl.common.errors import InputError, Unavailable
from gapsl.inference.places import parts_at
from gapsl.inference.remote import PATIENCE, RemoteServerModel, with_remote_server
from gapsl.inference.service import SILENCE_SECONDS, InferenceService, serve_inference
from gapsl.inference.split_model import TrainedParts
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import INFERENCE, PROTOCOL
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.framing import deserialize, framed, serialize


@contextmanager
def served(parts: TrainedParts, **options: object) -> Iterator[tuple[str, InferenceService]]:
    service = InferenceService(parts, **options)
    server = serve_inference(service, "localhost:0", None, streams=8)
    try:
        yield f"localhost:{server.port}", service
    finally:
        server.stop()


def images(count: int = 5) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("settings", "client"),
    [({}, 1), ({}, "ensemble"), ({"labels": "device"}, 2), ({"precision": "float64", "rounds": 2}, 0)],
)
def test_outputs_are_those_of_the_joined_model(settings: dict[str, object], client: int | str) -> None:
    parts = parts_at(run_of("psl", **settings), client)
    with served(parts) as (address, _):
        remote = with_remote_server(parts, address, "device-0").joined()
        assert torch.equal(remote.predict(images()), parts.joined().predict(images()))
        assert remote.predict(images(1)).shape == (1, 10)


def test_a_server_of_another_cut_or_run_refuses(tmp_path: Path) -> None:
    parts = parts_at(run_of("psl"), 1)
    others = parts_at(run_of("psl", cut=2), 1), replace(parts, run="another")
    with served(parts) as (address, _):
        for other, words in zip(
            others, ("another model or cut.*cut at 1", "trained in run 'another'"), strict=True
        ):
            with pytest.raises(InputError, match=words):
                with_remote_server(other, address, "device-0").joined().predict(images())
        assert len(with_remote_server(parts, address, "device-0").joined().predict(images())) == 5


def test_a_device_that_is_not_listed_is_refused() -> None:
    parts = parts_at(run_of("psl"), 1)
    with served(parts, names=("camera-1",)) as (address, _):
        assert len(with_remote_server(parts, address, "camera-1").joined().predict(images())) == 5
        with pytest.raises(InputError, match="'camera-2' is not a device of this run"):
            with_remote_server(parts, address, "camera-2").joined().predict(images())


def question(parts: TrainedParts, tensor: torch.Tensor, **changed: object) -> wire.Question:
    header, _ = describe(tensor, wire.PLAIN)
    fields = {
        "protocol": PROTOCOL, "name": "device-0", "model": parts.info.fingerprint(), "activations": header,
    }  # fmt: skip
    return wire.Question(**{**fields, **changed})


def refusal(address: str, messages: list[object]) -> wire.Refusal:
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(f"/{INFERENCE}/Predict", request_serializer=serialize)
        for data in call(iter(messages), timeout=10):
            answer = deserialize(wire.ToPredictor, data)
            assert not isinstance(answer, memoryview)
            assert answer.WhichOneof("message") == "refusal"
            return answer.refusal
    raise AssertionError("no answer")


def test_bad_questions_are_refused_and_others_answered() -> None:
    parts = parts_at(run_of("psl"), 1)
    good = parts.clients[0].model(images()).detach()
    width = good.shape[1]
    bad = {
        wire.VERSION: [question(parts, good, protocol=99)],
        wire.NOT_FINITE: list(
            framed(question(parts, good * torch.nan), describe(good * torch.nan, wire.PLAIN)[1])
        ),
        wire.TOO_MUCH: [question(parts, torch.zeros(5000, width))],
        wire.OTHER_RUN: [question(parts, good, model="x")],
        wire.STOPPED: [question(parts, good)],
    }
    shapes = [
        torch.zeros(5, width - 1),
        torch.zeros(5, width, 1),
        torch.zeros(0, width),
        torch.zeros(5, width).double(),
    ]
    with served(parts, waiting=1) as (address, _):
        for reason, messages in bad.items():
            first = wire.FromPredictor(question=messages[0])
            assert refusal(address, [first, *messages[1:]]).reason == reason
        for wrong in shapes:
            first = wire.FromPredictor(question=question(parts, wrong))
            assert refusal(address, [first]).reason == wire.MALFORMED
        with grpc.insecure_channel(address) as channel:
            call = channel.stream_stream(f"/{INFERENCE}/Predict")
            (answer,) = call(iter([b"\xff\xff garbage"]), timeout=10)
            assert deserialize(wire.ToPredictor, answer).refusal.reason == wire.MALFORMED
        remote = with_remote_server(parts, address, "device-0").joined()
        assert torch.equal(remote.predict(images()), parts.joined().predict(images()))


def test_a_full_queue_refuses_and_a_patient_device_comes_again() -> None:
    parts = parts_at(run_of("psl"), 1)
    with served(parts, waiting=1) as (address, service):
        remote = RemoteServerModel(parts, address, "device-0", None, patience=0.3)
        at_cut = parts.clients[0].model(images()).detach()
        with service._computing:
            held = threading.Thread(
                target=lambda: RemoteServerModel(parts, address, "device-1", None)(at_cut)
            )
            held.start()
            while service._room._value:  # until it has taken the only room
                pass
            with pytest.raises(Unavailable, match="1 questions are waiting"):
                remote(at_cut)
        held.join()
        assert torch.equal(remote(at_cut), parts.server(at_cut))


def test_questions_that_never_come_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapsl.inference.service.SILENCE_SECONDS", 0.5)
    parts = parts_at(run_of("psl"), 1)
    at_cut = parts.clients[0].model(images()).detach()
    over = threading.Event()

    def silent(name: str) -> Iterator[wire.FromPredictor]:
        yield wire.FromPredictor(question=question(parts, at_cut, name=name))
        over.wait(30)

    with served(parts, waiting=2) as (address, service), grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(f"/{INFERENCE}/Predict", request_serializer=serialize)
        held = [call(silent(f"liar-{number}")) for number in range(2)]
        while service._room._value:
            pass
        found = RemoteServerModel(parts, address, "device-0", None, patience=20.0)(at_cut)
        assert torch.equal(found, parts.server(at_cut))
        over.set()
        for one in held:
            one.cancel()
        while service._open._open:  # made-up names are not kept
            pass


def test_silence_ends_before_a_devices_patience() -> None:
    assert SILENCE_SECONDS < PATIENCE


def test_many_devices_ask_at_once() -> None:
    parts = parts_at(run_of("psl"), 1)
    expected, found = parts.joined().predict(images()), {}
    with served(parts, waiting=2) as (address, _):

        def ask(number: int) -> None:
            found[number] = with_remote_server(parts, address, f"device-{number}").joined().predict(images())

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(torch.equal(found[number], expected) for number in range(6))


def test_parts_that_are_missing_and_servers_that_are_not_there_are_said() -> None:
    parts = parts_at(run_of("psl"), 1)
    with pytest.raises(InputError, match="serve-model needs a run or an export"):
        InferenceService(replace(parts, server=None))
    with pytest.raises(InputError, match="give a device's state"):
        with_remote_server(replace(parts, clients=()), "localhost:1", "device-0")
    absent = RemoteServerModel(parts, "localhost:1", "device-0", None, patience=0.0)
    with pytest.raises(Unavailable, match="no answer from localhost:1"):
        absent(torch.zeros(1, 64))
    assert not isinstance(gapsl.load(run_of("psl"), 1).server, RemoteServerModel)


def test_who_waits_for_a_server_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gapsl.inference.remote.QUIET", -1.0)
    absent = RemoteServerModel(parts_at(run_of("psl"), 1), "localhost:1", "device-0", None, patience=1.0)
    with pytest.raises(Unavailable):
        absent(torch.zeros(1, 64))
    assert [record.message.endswith("asking again for up to 1 s") for record in caplog.records] == [True]
