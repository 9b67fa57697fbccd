"""Who may take part in a run, and what becomes of those who may not: told why, while the others go on."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from authorities import expired_device, pair_of
from cryptography.hazmat.primitives import serialization
from faults import JOINS
from fleet import PARAMETERS, SERVER, Fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from network import (
    SMALL,
    Devices,
    Served,
    answers,
    channel_to,
    hello,
    parameter_server,
    trained_over_loopback,
)
from processes import Launcher, memory_of, wait_until, weights_of

import gapsl
from gapsl.network.device.device_data import load_device_data
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server import service as training
from gapsl.network.tls import peers
from gapsl.network.tls.authority import Authority
from gapsl.network.tls.certificates import Pair, new_ca, new_device
from gapsl.network.tls.credentials import device_credentials, server_credentials
from gapsl.network.tls.peers import Peers
from gapsl.run.api import compose

NAMES = ("device-0", "device-1", "device-2")


def refusal(channel: grpc.Channel, messages: Iterable[Any], **more: Any) -> tuple[str, str]:
    """Return why a stream was refused: the reason's name, and what a person reads."""
    last = answers(channel, messages, **more)[-1].refusal
    return wire.Reason.Name(last.reason), last.message


# --- mutual TLS, with real certificates: what the wire says (test_network_certificates.py: what people see)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.create(tmp_path / "certs")
    for server in ("server", "parameter-server"):
        made.issue(server, ["localhost"])
    for device in NAMES:
        made.issue(device)
    return made


@pytest.fixture
def ca(authority: Authority) -> Pair:
    return pair_of(authority.folder)


class Guarded:
    """What a run with certificates is served with."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        self.folder = authority.folder
        self.devices = Devices(folder / "state", self.device)
        self.serving = {
            "devices": self.devices,
            "credentials": server_credentials(self.folder),
            "identify": Peers(self.folder).caller,
        }

    def device(self, name: str) -> grpc.ChannelCredentials:
        """Return what a device calls with."""
        return device_credentials(self.folder, name)

    def parameters(self) -> dict[str, Any]:
        """Return what the parameter server is served with."""
        return {
            "credentials": server_credentials(self.folder, "parameter-server"),
            "identify": Peers(self.folder).caller,
        }


def credentials_of(ca_pem: bytes, pair: Pair) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(ca_pem, pair.key_pem, pair.certificate_pem)


def code_of(port: int, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    with channel_to(port, credentials) as channel, pytest.raises(grpc.RpcError) as error:
        answers(channel, [hello("device-0")])
    return error.value.code()


class Jumping(datetime):
    """A clock that is two years ahead, and is set right after so many looks at it."""

    wrong = 6

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        cls.wrong -= 1
        return datetime.now(tz) + timedelta(days=730 if cls.wrong >= 0 else 0)


def test_a_server_whose_clock_jumps_does_not_lose_its_devices(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = Guarded(authority, tmp_path)
    monkeypatch.setattr(peers, "datetime", Jumping)
    result = trained_over_loopback(compose(words=SMALL), tmp_path, **guarded.serving)
    assert result.rounds == SMALL["rounds"]
    assert all("finished" in str(word) for word in guarded.devices.ended.values())
    told = [text for text in guarded.devices.said if "the server's clock says" in text]
    assert told and all("next attempt within" in text for text in told)


def test_strangers_are_turned_away_for_a_reason_and_the_run_ends_as_without_them(
    authority: Authority, ca: Pair, tmp_path: Path
) -> None:
    config = compose(words={**SMALL, "method": "sfl", "sfl": {"interval": 2}})
    guarded = Guarded(authority, tmp_path)
    trusted = authority.certificate.public_bytes(serialization.Encoding.PEM)
    authority.issue("stranger")
    authority.issue("lost")
    lost = guarded.device("lost")
    authority.revoke("lost")
    with parameter_server(tmp_path / "parameters", 3, **guarded.parameters()) as address:
        served = Served(config, tmp_path, network={"parameter_server": address}, **guarded.serving)
        guarded.devices.start(served.port, "device-0", "device-1")
        wait_until(lambda: "device-0 connected" in served.said, "device-0 is there")

        # The handshake refuses who has no certificate that is ours and valid.
        handshakes = {
            "wrong CA": credentials_of(trusted, new_device(new_ca(), "device-0")),
            "expired": credentials_of(trusted, expired_device(ca, "device-0")),
            "no certificate": grpc.ssl_channel_credentials(trusted),
            "plain text": None,
        }
        for who, credentials in handshakes.items():
            assert code_of(served.port, credentials) == grpc.StatusCode.UNAVAILABLE, who

        # The server refuses who is not who it says, or not of this run, and says so.
        with channel_to(served.port, lost) as channel:
            assert refusal(channel, [hello("lost")]) == (
                "IDENTITY", "the certificate of lost is revoked; issue a new one to let lost in again",
            )  # fmt: skip
        with channel_to(served.port, guarded.device("stranger")) as channel:
            reason, said = refusal(channel, [hello("stranger")])
            assert reason == "NOT_LISTED"
            assert said == "'stranger' is not a device of this run; list it with --names at the server"
            reason, said = refusal(channel, [hello("device-2")])
            assert reason == "IDENTITY"
            assert said == "the certificate is that of 'stranger', the device says it is 'device-2'"
        with channel_to(served.port, guarded.device("device-0")) as channel:
            reason, said = refusal(channel, [hello("device-0")])
            assert reason == "TWICE" and "'device-0' is connected already" in said
            assert refusal(channel, [hello("device-1")])[0] == "IDENTITY"
            reason, said = refusal(channel, [hello("device-0", protocol=99)])
            assert reason == "VERSION"
            assert "speaks protocol 1, the device 99" in said and "install the same gapsl on both" in said

        # And so does the parameter server.
        port, method = int(address.rpartition(":")[2]), "gapsl.v1.Parameters/Share"
        assert code_of(port, handshakes["wrong CA"]) == grpc.StatusCode.UNAVAILABLE
        with channel_to(port, guarded.device("device-0")) as channel:
            found = [
                refusal(channel, [announce(name, number, protocol)], method=method)[0]
                for name, number, protocol in (
                    ("device-1", 1, 1), ("device-0", 1, 1), ("device-0", 0, 2), ("stranger", 0, 1),
                )
            ]  # fmt: skip
        assert found == ["IDENTITY", "IDENTITY", "VERSION", "IDENTITY"]

        assert served.running
        guarded.devices.start(served.port, "device-2")
        result = served.result()
    assert set(guarded.devices.ended.values()) == {"the run is finished"}
    assert result.final.weights_sha256 == gapsl.train(config).final.weights_sha256


def announce(name: str, device: int, protocol: int) -> wire.FromParameterClient:
    about = wire.Announce(
        protocol=protocol,
        name=name,
        device=device,
        run="run",
        transfer="a-1-1",
        weights={device: 1.0},
        tensors=1,
    )
    return wire.FromParameterClient(announce=about)


# --- whatever anybody sends

MANY = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
FEW = settings(MANY, max_examples=300, derandomize=True)

NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 7, 2**31 - 1])
LARGE = st.sampled_from([-(2**63), -1, 0, 1, 8, 400, 2**40, 2**63 - 1])
TENSORS = st.builds(
    wire.Tensor,
    dtype=st.integers(0, 4),
    shape=st.lists(LARGE, max_size=5),
    codec=st.integers(0, 5),
    compression=st.integers(0, 2),
    bytes=LARGE,
)
LABELS = st.lists(NUMBERS, max_size=9)
NAMED = st.text(max_size=30) | st.sampled_from(NAMES)
# Half of them count as many classes as digits has, but nobody says that it has 360 samples: who is believed
# once is held to the data it said it had. Who is believed and then misbehaves: test_network_frames.py.
COUNTS = st.lists(LARGE, max_size=9) | st.just([36] * 10)
READY = st.builds(
    wire.Ready,
    samples=LARGE,
    label_counts=COUNTS,
    batches_per_pass=LARGE,
    generation=LARGE,
    round=NUMBERS,
    turn=NUMBERS,
    waiting=st.booleans(),
)
DEVICE_WORDS = st.one_of(
    st.builds(wire.Hello, protocol=NUMBERS, version=st.text(max_size=30), name=NAMED),
    READY,
    st.builds(wire.Upload, round=NUMBERS, turn=NUMBERS, activations=TENSORS, labels=LABELS),
    st.builds(wire.Scored, batch=NUMBERS, activations=TENSORS, labels=LABELS),
    st.builds(wire.Done),
    st.builds(wire.Status, drift=st.floats(), sha256=st.text(max_size=9)),
    st.builds(wire.Failed, reason=st.text(max_size=300)),
    st.builds(wire.Part, data=st.binary(max_size=64)),
).map(lambda word: wire.FromDevice(**{type(word).__name__.lower(): word}))
FRAMES = DEVICE_WORDS.map(lambda message: message.SerializeToString()) | st.binary(max_size=64)
HOLDER_WORDS = (
    st.builds(
        wire.Announce, protocol=st.sampled_from([1, 1, 1, 2]), name=st.sampled_from([*NAMES, "x"]),
        device=st.sampled_from([0, 0, 1, -1, 2**31 - 1]), run=st.sampled_from(["run", "", "../..", "a/b"]),
        transfer=st.sampled_from(["a-1-1", "..", "b-2-2"]), fetch=st.just(False), tensors=NUMBERS,
        weights=st.dictionaries(NUMBERS, st.floats(), max_size=3),
    ).map(lambda m: wire.FromParameterClient(announce=m))
    | st.builds(wire.Named, name=st.text(max_size=9), tensor=TENSORS)
    .map(lambda m: wire.FromParameterClient(named=m))
    | st.builds(wire.Part, data=st.binary(max_size=64)).map(lambda m: wire.FromParameterClient(part=m))
)  # fmt: skip
HOLDER_FRAMES = HOLDER_WORDS.map(lambda message: message.SerializeToString()) | st.binary(max_size=64)
REASONS = set(wire.Reason.values()) - {wire.REASON_UNKNOWN}


def send_bad_frames(cli: Launcher, tmp_path: Path, how: settings) -> None:
    """Let a server wait for its last device while that one sends anything; then it comes properly."""
    # Visits that mean nothing are no news: its patience has to last for all of them.
    with Fleet(cli, tmp_path, {"method": "psl", "rounds": 5}, patience=1800) as fleet:
        fleet.environments[SERVER] = {JOINS: "1000000"}  # or most frames would meet no more than that limit
        fleet.start(SERVER, "device-0", "device-1")
        for name in ("device-0", "device-1"):
            fleet.until(lambda name=name: f"{name} connected" in fleet.server.stderr, name)  # type: ignore[misc]
        measured = sent_bad_frames(fleet, how)
        fleet.start("device-2")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()
    assert_flat(measured)


def assert_flat(measured: list[int]) -> None:
    """Check that a process needs no more memory for more visits, once it has seen everything."""
    grown = max(measured) - measured[len(measured) // 10]
    assert grown < 24 << 20, f"memory grew: {[size >> 20 for size in measured[::100]]} MiB"


def sent_bad_frames(fleet: Fleet, how: settings) -> list[int]:
    """Send them; returns the server's memory after each visit."""
    taken: list[int] = []

    with channel_to(fleet.port) as channel:

        @how
        @given(st.booleans(), st.lists(FRAMES, min_size=1, max_size=4))
        def bad_frames(introduced: bool, frames: list[bytes]) -> None:
            said = answers(channel, [*([hello("device-2")] if introduced else []), *frames])
            for word in said[:-1]:
                assert word.WhichOneof("message") == "welcome"
            if said and said[-1].WhichOneof("message") == "refusal":
                assert said[-1].refusal.message and len(said[-1].refusal.message) < 1000
            taken.append(memory_of(fleet.server.pid))

        bad_frames()
    assert len(taken) >= how.max_examples
    return taken


def test_bad_frames_harm_nobody(cli: Launcher, tmp_path: Path) -> None:
    send_bad_frames(cli, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_bad_frames_harm_nobody(cli: Launcher, tmp_path: Path) -> None:
    send_bad_frames(cli, tmp_path, MANY)


def share_bad_frames(cli: Launcher, tmp_path: Path, how: settings) -> None:
    """Send a parameter server anything; then a run needs it."""
    taken: list[int] = []
    words = {"method": "sfl", "sfl": {"interval": 2}, "rounds": 5}
    with Fleet(cli, tmp_path, words, parameters=True) as fleet:
        holder = fleet.start(PARAMETERS)
        wait_until(lambda: "parameter server on" in holder.stderr, "the parameter server listens")
        with channel_to(fleet.parameter_port) as channel:

            @how
            @given(st.lists(HOLDER_FRAMES, min_size=1, max_size=4))
            def bad_frames(frames: list[bytes]) -> None:
                said = answers(channel, frames, method="gapsl.v1.Parameters/Share")
                assert len(said) == 1
                assert said[0].WhichOneof("message") == "finished" or said[0].refusal.reason in REASONS
                taken.append(memory_of(holder.pid))

            bad_frames()
        assert holder.running
        before = {path.name for path in tmp_path.iterdir()}
        fleet.start(SERVER, *NAMES)
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()
    assert_flat(taken)
    assert before == {"run.yaml", "served.yaml", "parameters"}, "no name has led anywhere else"


def test_bad_frames_do_not_harm_the_parameter_server(cli: Launcher, tmp_path: Path) -> None:
    share_bad_frames(cli, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_bad_frames_do_not_harm_the_parameter_server(cli: Launcher, tmp_path: Path) -> None:
    share_bad_frames(cli, tmp_path, MANY)


def test_a_device_that_joins_over_and_over_is_told_to_wait_and_is_welcome_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_JOINS", 5)
    monkeypatch.setattr(training, "JOINS_SECONDS", 60.0)
    config = compose(words={**SMALL, "method": "psl"})
    served = Served(config, tmp_path)
    with channel_to(served.port) as channel:
        said = [answers(channel, [hello("device-2")])[-1] for _ in range(20)]
        last = said[-1].refusal
        assert last.reason == wire.TOO_OFTEN and "'device-2' joins too often" in last.message
        assert refusal(channel, [hello("device-1"), b"\xff"])[0] == "MALFORMED", "others are not meant"
    monkeypatch.setattr(training, "JOINS_SECONDS", 0.0)  # later
    served.devices.start(served.port, *NAMES)
    assert served.result().final.weights_sha256 == gapsl.train(config).final.weights_sha256


# --- a device that is one of us, until it is not


class Impostor:
    """A device that behaves until it is asked for its activations."""

    def __init__(
        self, channel: grpc.Channel, name: str, instead: Callable[[wire.Forward], wire.FromDevice]
    ) -> None:
        self._instead = instead
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = channel.stream_stream("/gapsl.v1.Training/Join")(iter(self._words.get, None), timeout=60)
        self._say(hello(name))

    def _say(self, word: wire.FromDevice) -> None:
        self._words.put(word.SerializeToString())

    def run(self) -> wire.Refusal:
        """Take part until the server has had enough."""
        for data in self._call:
            command = wire.ToDevice.FromString(data)
            kind = command.WhichOneof("message")
            if kind == "welcome":
                info = load_device_data(command.welcome).info
                self._say(
                    wire.FromDevice(
                        ready=wire.Ready(
                            samples=info.samples,
                            label_counts=info.label_counts,
                            batches_per_pass=info.batches_per_pass,
                        )
                    )
                )
            elif kind in ("begin", "save"):
                self._say(wire.FromDevice(done=wire.Done()))
            elif kind == "forward":
                self._say(self._instead(command.forward))
            elif kind == "refusal":
                self._words.put(None)
                return command.refusal
        raise AssertionError("the stream ended without a word")


def upload(round: int, shape: tuple[int, ...]) -> wire.FromDevice:
    tensor = wire.Tensor(dtype=wire.FLOAT32, shape=shape, codec=wire.PLAIN, bytes=32)
    return wire.FromDevice(upload=wire.Upload(round=round, activations=tensor, labels=[0] * 8))


BAD = {
    "LATE": lambda asked: upload(asked.round - 1, (8, 1)),
    "MALFORMED": lambda asked: wire.FromDevice(done=wire.Done()),
    "TOO_MUCH": lambda asked: upload(asked.round, (8, 2**40, 1, 1)),
    "REASON_UNKNOWN": lambda asked: wire.FromDevice(failed=wire.Failed(reason="no battery")),
}


@pytest.mark.parametrize("closing", ["all", pytest.param("fraction:0.6", marks=pytest.mark.slow)])
def test_a_device_that_turns_bad_in_a_round_is_refused_and_the_others_go_on(
    closing: str, tmp_path: Path
) -> None:
    rounds = 5 if closing == "all" else 300
    config = compose(words={**SMALL, "method": "psl", "rounds": rounds, "evaluate_every": rounds})
    served = Served(config, tmp_path, network={"closing": closing})
    served.devices.start(served.port, "device-0", "device-1")
    for reason, instead in BAD.items():
        with channel_to(served.port) as channel:
            found = Impostor(channel, "device-2", instead).run()
        assert wire.Reason.Name(found.reason) == reason, found.message
        assert found.message
    assert served.running
    served.devices.start(served.port, "device-2")
    result = served.result()
    if closing == "all":
        assert result.final.weights_sha256 == gapsl.train(config).final.weights_sha256
