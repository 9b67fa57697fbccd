"""Visits to the parameter server, over real links: what honest devices get, whatever others do there."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from fleet import free_port
from network import SMALL, Served, answers, channel_to, parameter_server
from processes import wait_until
from torch import Tensor

from gapsl.cli.join import join
from gapsl.common.errors import InputError
from gapsl.models.part import average
from gapsl.network import serving
from gapsl.network.device.join import credentials_at
from gapsl.network.parameter_server import client as parameter_client
from gapsl.network.parameter_server import service as parameters
from gapsl.network.parameter_server.client import ParameterClient, TurnedAway
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import parts, serialize
from gapsl.network.serving import SPARE
from gapsl.network.tls.authority import Authority
from gapsl.run.api import compose

EQUAL = {0: 1.0, 1: 1.0, 2: 1.0}
ELSEWHERE = "192.0.2.1:7444"  # an address that nobody has

Weights = dict[str, Tensor]


def part(seed: int, width: int = 4) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return {"conv.weight": torch.randn(width, 3, generator=generator), "norm.count": torch.tensor(seed)}


def assert_same(found: Any, expected: Weights) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor)


class Place:
    """A parameter server for three devices, and what it said."""

    def __init__(self, address: str, said: list[str]) -> None:
        self.address, self.said = address, said

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def visit(
        self, device: int, brings: Weights, weights: dict[int, float] = EQUAL, run: str = "run", **share: Any
    ) -> Visit:
        """Let a device bring a client-side model and wait for the mean."""
        return Visit(self.address, device, brings, weights, run, **share)


class Visit:
    """A device's visit in a thread: what it took home, or how it ended; and what it said meanwhile."""

    def __init__(
        self,
        address: str,
        device: int,
        brings: Weights,
        weights: dict[int, float],
        run: str,
        fetch: bool = True,
    ) -> None:
        self.said: list[str] = []
        self.result: Weights | WireError | None = None
        self.wanted = True
        self._visitor = ParameterClient(f"device-{device}", address, tell=self.said.append)
        welcome = wire.Welcome(device=device, run=run)
        share = wire.Share(transfer="a-1-1", weights=weights, fetch=fetch)
        self._thread = threading.Thread(target=self._share, args=(welcome, share, brings), daemon=True)
        self._thread.start()

    def _share(self, welcome: wire.Welcome, share: wire.Share, brings: Weights) -> None:
        try:
            self.result = self._visitor.share(welcome, share, brings, lambda: self.wanted)
        except WireError as error:
            self.result = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> Weights | WireError | None:
        """Wait for its end."""
        self._thread.join(20)
        assert self.over, f"it is still there: {self.said[-3:]}"
        return self.result

    def give_up(self) -> None:
        self.wanted = False
        self.end()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    said: list[str] = []
    with parameter_server(tmp_path / "parameters", 3, tell=said.append) as address:
        yield Place(address, said)


def announcement(device: int = 0, *, run: str = "run", tensors: int = 1, fetch: bool = False) -> bytes:
    about = wire.Announce(
        protocol=1, name=f"device-{device}", device=device, run=run, transfer="a-1-1",
        weights={device: 1.0, 2: 1.0}, tensors=tensors, fetch=fetch,
    )  # fmt: skip
    return wire.FromParameterClient(announce=about).SerializeToString()


class Stream:
    """A stream to the parameter server on which a test says what it likes, when it likes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = channel.stream_stream("/gapsl.v1.Parameters/Share")(iter(self._words.get, None))

    def say(self, *words: bytes) -> None:
        for word in words:
            self._words.put(word)

    @property
    def open(self) -> bool:
        return bool(self.call.is_active())

    def code(self) -> grpc.StatusCode:
        """Wait for its end, and return how it ended."""
        wait_until(lambda: not self.open, "the end of a stream", deadline=20)
        return self.call.code()


@contextmanager
def streams(place: Place) -> Iterator[Callable[[], Stream]]:
    """Opens streams, and ends those that the test has left open."""
    opened: list[Stream] = []

    def open_one() -> Stream:
        opened.append(Stream(channel))
        return opened[-1]

    with channel_to(place.port) as channel:
        try:
            yield open_one
        finally:
            for one in opened:
                one._words.put(None)
                one.call.cancel()


# --- whatever another device does, honest ones are not turned away


def test_whoever_comes_first_with_other_weights_does_not_keep_the_others_from_their_mean(
    place: Place,
) -> None:
    intruder = place.visit(2, part(9, width=7), {0: 1.0, 1: 1.0, 2: 1000.0})
    wait_until(lambda: any("'device-2' connected" in line for line in place.said), "the intruder")
    expected = average([part(0), part(1)], [1.0, 2.0])
    found = [place.visit(device, part(device), {0: 1.0, 1: 2.0}) for device in (0, 1)]
    for visit in found:
        assert_same(visit.end(), expected)
    intruder.give_up()


def test_a_part_of_another_model_is_named_and_ends_nobody_and_the_right_one_is_still_welcome(
    place: Place,
) -> None:
    odd = place.visit(2, part(2, width=7))
    honest = [place.visit(device, part(device)) for device in (0, 1)]
    for visit in (*honest, odd):
        wait_until(lambda visit=visit: visit.said, "a word")  # type: ignore[misc]
        assert (
            "client-side models of different shapes cannot be averaged; not like most others: device 2"
            in visit.said[0]
        )
        assert not visit.over
    odd.give_up()
    again = place.visit(2, part(2))
    for visit in (*honest, again):
        assert_same(visit.end(), average([part(0), part(1), part(2)], [1.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("handed_on", "why"),
    [
        (part(0, width=7), "dimension 0 is 7 where 4 was agreed"),
        ({**part(0), "more": torch.ones(1)}, "the mean has a tensor that the model does not have"),
        ({"norm.count": torch.tensor(0)}, "the mean has 1 of the model's 2 tensors"),
    ],
    ids=["another shape", "more", "less"],
)
def test_who_is_handed_a_part_of_another_model_says_so_and_waits_for_a_right_one(
    place: Place, handed_on: Weights, why: str
) -> None:
    place.visit(0, handed_on, {0: 1.0}, fetch=False).end()
    taking = place.visit(1, part(1), {0: 1.0})
    wait_until(lambda: taking.said, "a word")
    assert why in taking.said[0] and not taking.over
    taking.give_up()


def test_who_is_turned_away_itself_does_not_try_again(place: Place) -> None:
    ended = place.visit(1, part(1), {1: 1.0, 9: 1.0}).end()
    assert isinstance(ended, TurnedAway) and ended.reason == wire.MALFORMED
    assert str(ended) == (
        f"the parameter server {place.address}: weights of devices [9], which are not listed here"
    )


def named(name: str, *shape: int) -> bytes:
    """Announce a tensor without numbers."""
    tensor = wire.Tensor(dtype=wire.FLOAT32, shape=shape, codec=wire.PLAIN, bytes=0)
    return wire.FromParameterClient(named=wire.Named(name=name, tensor=tensor)).SerializeToString()


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (named("x" * 257, 0), "is no name of another tensor"),
        (named("", 0), "is no name of another tensor"),
        (named("__metadata__", 0), "is no name of another tensor"),
        (named("weight", 2**62, 2**62, 0), "a tensor of 3 dimensions that cannot be"),
        (named("weight", -1, 0), "a tensor of 2 dimensions that cannot be"),
        (named("weight", *[2**62] * 20_000), "a tensor of 20000 dimensions that cannot be"),
    ],
    ids=["long", "empty", "reserved", "huge", "negative", "many"],
)
def test_what_is_no_tensor_of_a_part_is_refused_in_words(place: Place, tensor: bytes, why: str) -> None:
    with channel_to(place.port) as channel:
        (word,) = answers(channel, [announcement(tensors=2), tensor], "gapsl.v1.Parameters/Share")
    assert isinstance(word, wire.ToParameterClient)
    assert word.refusal.reason == wire.MALFORMED and why in word.refusal.message


def test_names_are_part_of_what_a_part_may_have() -> None:
    names = (named(f"{number:0256d}", 0) for number in range(100))
    with pytest.raises(WireError, match="a client-side model of more than 10240 bytes") as refused:
        parameters.brought(names, 100, 10240)
    assert refused.value.reason == wire.TOO_MUCH


# --- nobody keeps the server's threads


def test_streams_that_say_nothing_are_ended_and_then_others_are_served(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HELLO_SECONDS", 0.5)
    with streams(place) as new:
        silent = [new() for _ in range(3 * parameters.MOST_VISITS + SPARE)]  # as many as there are threads
        visit = place.visit(0, part(0), {0: 1.0})
        assert_same(visit.end(), part(0))
        assert {one.code() for one in silent} == {grpc.StatusCode.CANCELLED}
    told = [text for text in place.said if "is refused: the stream ended before its announce" in text]
    assert len(told) == 1 and told[0].startswith("somebody at "), "and it is said once"


def test_a_part_that_stops_arriving_is_not_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "SILENCE_SECONDS", 0.5)
    with streams(place) as new:
        stream = new()
        stream.say(announcement(tensors=2))
        assert stream.code() == grpc.StatusCode.CANCELLED
    wait_until(lambda: "'device-0' is refused: the stream ended after 0 of 2 tensors" in place.said, "a word")
    assert "'device-0': nothing has moved for 0.5 s, the link is ended" in place.said


def test_a_part_that_arrives_slowly_arrives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "SILENCE_SECONDS", 3.0)
    header, data = describe(torch.ones(40), wire.PLAIN)
    with streams(place) as new:
        stream = new()
        stream.say(
            announcement(),
            wire.FromParameterClient(named=wire.Named(name="w", tensor=header)).SerializeToString(),
        )
        for part in parts(data, size=16):
            time.sleep(0.4)  # ten parts, longer than it may be silent
            stream.say(serialize(part))
        last = [wire.ToParameterClient.FromString(word) for word in stream.call]
    assert [word.WhichOneof("message") for word in last] == ["finished"]


def test_a_mean_that_is_not_taken_is_not_held_out_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "SILENCE_SECONDS", 0.5)
    large = {"weight": torch.zeros(3 << 20)}  # 12 MiB, more than a link holds
    place.visit(2, large, {2: 1.0}, fetch=False).end()
    about = wire.Announce(
        protocol=1, name="device-0", device=0, run="run", transfer="a-1-1", weights={2: 1.0}, fetch=True
    )
    with streams(place) as new:
        stream = new()
        stream.say(wire.FromParameterClient(announce=about).SerializeToString())
        ended = "'device-0': nothing has moved for 0.5 s, the link is ended"
        wait_until(lambda: ended in place.said, "the end of the visit", deadline=20)


def test_waiting_for_others_is_no_silence(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "SILENCE_SECONDS", 1.0)
    early = place.visit(0, part(0), {0: 1.0, 1: 1.0})
    time.sleep(2.0)
    late = place.visit(1, part(1), {0: 1.0, 1: 1.0})
    for visit in (early, late):
        assert_same(visit.end(), average([part(0), part(1)], [1.0, 1.0]))
        assert not visit.said


def here(place: Place, device: int, times: int) -> Callable[[], bool]:
    return lambda: sum(f"'device-{device}' connected" in line for line in place.said) == times


def test_a_newer_visit_of_a_device_ends_the_older_one(place: Place) -> None:
    with streams(place) as new:
        first, other = new(), new()
        first.say(announcement(0))
        other.say(announcement(1))
        wait_until(lambda: here(place, 0, 1)() and here(place, 1, 1)(), "both visits")
        second = new()
        second.say(announcement(0))
        assert first.code() == grpc.StatusCode.CANCELLED
        assert second.open and other.open


def test_a_device_may_be_there_for_several_runs_but_not_for_any_number(place: Place) -> None:
    with streams(place) as new:
        visits = [new() for _ in range(parameters.MOST_VISITS + 1)]
        for number, one in enumerate(visits):
            one.say(announcement(0, run=f"run-{number}"))
            wait_until(here(place, 0, number + 1), "the visit")
        assert visits[0].code() == grpc.StatusCode.CANCELLED
        assert all(one.open for one in visits[1:])


# --- nobody fails without a word


def test_a_device_that_cannot_share_its_part_says_why_at_once_and_then_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parameter_client, "TELL_SECONDS", 2.0)
    address = f"localhost:{free_port()}"
    begun = time.monotonic()
    visit = Visit(address, 0, part(0), EQUAL, "run")
    wait_until(lambda: visit.said, "a word", deadline=10)
    assert visit.said[0].startswith(f"cannot share the client-side model at the parameter server {address} (")
    assert visit.said[0].endswith("); trying on") and "refused" in visit.said[0]
    wait_until(lambda: len(visit.said) > 1, "another word", deadline=20)
    assert time.monotonic() - begun >= 2.0
    assert len(visit.said) == 2 and "\n" not in "".join(visit.said)
    visit.give_up()


def test_the_word_says_what_is_wrong_with_tls(tmp_path: Path) -> None:
    said: list[str] = []
    with parameter_server(tmp_path, 3) as address:  # in plain text
        calling = ParameterClient("device-0", address, grpc.ssl_channel_credentials(), said.append)
        with pytest.raises(WireError, match="the server has gone"):
            calling.share(wire.Welcome(run="run"), wire.Share(transfer="a"), part(0), lambda: not said)
    assert "it speaks plain text" in said[0]


def test_a_full_disk_of_the_parameter_server_is_told_to_the_devices(tmp_path: Path) -> None:
    (tmp_path / "parameters").touch()  # a file where the folder has to be: it cannot write
    with parameter_server(tmp_path / "parameters", 3) as address:
        visit = Visit(address, 0, part(0), {0: 1.0}, "run")
        wait_until(lambda: visit.said, "a word")
        assert "cannot write" in visit.said[0] and "make room" in visit.said[0]
        (tmp_path / "parameters").unlink()
        assert_same(visit.end(), part(0))


def test_the_parameter_server_says_who_comes_for_what_and_when_a_mean_is_done(place: Place) -> None:
    for visit in [place.visit(device, part(device)) for device in (0, 1, 2)]:
        visit.end()
    place.visit(1, part(1), {1: 1.0, 9: 1.0}).end()
    assert sorted(place.said[:3]) == [
        f"run run, transfer a-1-1: 'device-{device}' connected" for device in (0, 1, 2)
    ]
    assert place.said[3:] == [
        "run run, transfer a-1-1: the mean of 3 is done",
        "'device-1' is refused: weights of devices [9], which are not listed here",
    ]


# --- client-side models go nowhere that whoever started the device did not agree to


def test_the_parameter_server_is_reached_over_tls_unless_it_is_on_this_machine(tmp_path: Path) -> None:
    assert credentials_at("localhost:7444", "cam", None, False, None) is None
    assert credentials_at(ELSEWHERE, "cam", None, True, None) is None, "asked for with --insecure"
    missing = tmp_path / "none"
    with pytest.raises(
        InputError, match=f"^the parameter server that the server names: {ELSEWHERE} is reached"
    ):
        credentials_at(ELSEWHERE, "cam", missing, False, None)
    authority = Authority.create(tmp_path / "certs")
    authority.issue("cam")
    for address in ("localhost:7444", ELSEWHERE):
        assert credentials_at(address, "cam", authority.folder, False, None) is not None


def test_a_device_that_knows_its_parameter_server_goes_to_no_other() -> None:
    assert credentials_at("localhost:7444", "cam", None, False, "localhost:7444") is None
    with pytest.raises(InputError, match="names localhost:7443 as the parameter server, not localhost:7444"):
        credentials_at("localhost:7443", "cam", None, False, "localhost:7444")


def test_a_device_of_this_machine_does_not_send_its_part_elsewhere_in_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where there are no certificates
    asked = threading.Event()
    config = compose(words={**SMALL, "method": "sfl"})
    served = Served(config, tmp_path, network={"parameter_server": ELSEWHERE}, stop=asked.is_set)
    joining = partial(join, server=f"localhost:{served.port}", name=["device-0"], state=tmp_path / "state")
    with pytest.raises(InputError, match=f"that the server names: {ELSEWHERE} is reached over TLS"):
        joining()
    with pytest.raises(InputError, match=f"the server names {ELSEWHERE} as .* not localhost:7444: no model"):
        joining(insecure=True, parameter_server="localhost:7444")
    asked.set()
    wait_until(lambda: not served.running, "the end of the server")
