"""How a run goes over the network: the section `network` of a configuration, and when a round closes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from pydantic import Field, ValidationError

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.common.settings import Settings, brief, in_words
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.tls.names import check_name

CODECS: Mapping[str, wire.Codec] = {
    "none": wire.PLAIN,
    "fp16": wire.FP16,
    "bf16": wire.BF16,
    "int8": wire.INT8,
}
COMPRESSIONS: Mapping[str, wire.Compression] = {"none": wire.UNCOMPRESSED, "zstd": wire.ZSTD}

CodecName = Literal["none", "fp16", "bf16", "int8"]
HOW = "all, quorum:SHARE, fraction:SHARE (0 to 1) or deadline:SECONDS"
QUORUM = "quorum:0.8"
LATE = 3.0  # times what the quorum usually takes that the others are waited for
SOONEST = 1.0  # seconds that they are waited for in any case: nobody is late who was busy for a moment
PATIENT = 60.0  # seconds that they are where the usual pace is not known
PACES_KNOWN, PACES_KEPT = 3, 20  # rounds after which the usual pace is known, and by which it is told
SLOW = 5.0  # seconds that there are at least for what is no round: an evaluation batch, a checkpoint


class Pace:
    """The seconds that it took lately until a quorum was there."""

    def __init__(self) -> None:
        self._lately: deque[float] = deque(maxlen=PACES_KEPT)

    def add(self, seconds: float) -> None:
        """Take note of a round."""
        self._lately.append(seconds)

    @property
    def usual(self) -> float | None:
        """The median, if enough rounds are known."""
        return median(self._lately) if len(self._lately) >= PACES_KNOWN else None


@dataclass(frozen=True)
class RoundPolicy:
    """A policy; whatever it is, a round with everybody closes at once, and one with nobody never."""

    name: Literal["all", "quorum", "fraction", "deadline"] = "all"
    argument: float = 1.0  # the share, or the seconds
    least: int = 1  # devices that a deadline waits for

    @property
    def waits_for_all(self) -> bool:
        """Whether every device is waited for, however long it is away."""
        return self.name == "all"

    @property
    def seconds(self) -> float:
        """How long those who are late are waited for, where that does not depend on the pace."""
        return self.argument if self.name == "deadline" else math.inf

    def answer_seconds(self, pace: float | None) -> float:
        """Return how long an answer is waited for where no round is open."""
        if self.name == "quorum":
            return PATIENT if pace is None else LATE * max(pace, SLOW)
        return max(self.seconds, SLOW)

    def enough(self, asked: int) -> int:
        """Return how many devices are the share of a quorum or a fraction."""
        return max(1, math.ceil(self.argument * asked - 1e-9))

    def of_round(self, asked: int, pace: float | None) -> RoundPolicy:
        """Return the policy of a round: a quorum's is a deadline, by the seconds that quorums took lately."""
        if self.name != "quorum":
            return self
        wait = PATIENT if pace is None else max(LATE * pace, SOONEST)
        return RoundPolicy("deadline", wait, self.enough(asked))

    def closes(self, asked: int, arrived: int, seconds: float) -> bool:
        """Say whether a round of so many devices closes, with so many arrived after so long."""
        if arrived == asked:
            return True
        if self.name == "fraction":
            return arrived >= self.enough(asked)
        return self.name == "deadline" and seconds >= self.argument and arrived >= min(self.least, asked)


def parse_round_policy(text: str, *, least: int = 1) -> RoundPolicy:
    """Read a policy as it is written in settings."""
    name, _, argument = text.partition(":")
    try:
        number = float(argument) if argument else 1.0
    except ValueError:
        raise InputError(f"closing {text!r}: {argument!r} is not a number; write {HOW}") from None
    if name == "all" and not argument:
        return RoundPolicy("all")
    if name == "quorum" and argument and 0 < number <= 1:
        return RoundPolicy("quorum", number)
    if name == "fraction" and argument and 0 < number <= 1:
        return RoundPolicy("fraction", number)
    if name == "deadline" and argument and 0 < number < math.inf:
        return RoundPolicy("deadline", number, least)
    raise InputError(f"unknown closing {text!r}; write {HOW}")


class Network(Settings):
    """What a server agrees on with its devices; settings of training are elsewhere."""

    names: tuple[str, ...] = Field((), description="the devices by name; none: device-0 and so on")
    data: Literal["shared", "own"] = Field(
        "shared", description="every device has its part of `dataset`, or brings its own with join --data"
    )
    closing: str = Field(
        "auto", description=f"when a round closes: {HOW}; auto: {QUORUM} with devices' own data, else all"
    )
    least: int = Field(1, ge=1, description="devices that a deadline waits for, however late it is")
    activations: CodecName = Field("none", description="how devices write activations")
    gradients: CodecName = Field("none", description="how the server writes gradients; of the short, bf16")
    compression: Literal["none", "zstd"] = Field("none", description="what is done to the bytes")
    parameter_server: str = Field("", description="HOST:PORT, for methods that move client-side models")
    patience: float = Field(600, gt=0, description="seconds without any news before the server gives up")

    def round_policy(self) -> RoundPolicy:
        """Return the policy by which rounds close; `auto` is settled when a run begins."""
        if self.closing == "auto":
            return RoundPolicy("all")
        return parse_round_policy(self.closing, least=self.least)

    def device_names(self, count: int) -> tuple[str, ...]:
        """Return the names of so many devices."""
        names = self.names or tuple(f"device-{number}" for number in range(count))
        if len(names) != count:
            raise InputError(f"network.names has {len(names)} devices, devices = {count}; make them the same")
        return check_names(names)


def check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of devices if they can be, or say what is wrong with them."""
    if len(set(names)) != len(names):
        raise InputError(f"a device is named twice: {', '.join(names)}")
    return tuple(check_name(name) for name in names)


def make_network(values: Mapping[str, Any]) -> Network:
    """Return the settings with these values, or say what is wrong with them."""
    try:
        network = Network.model_validate(dict(values))
    except ValidationError as error:
        mistake = error.errors()[0]
        name = ".".join(str(part) for part in mistake["loc"])
        if mistake["type"] == "extra_forbidden":
            raise InputError(
                f"unknown setting 'network.{name}'; {nearest(name, set(Network.model_fields))}"
            ) from None
        raise InputError(f"network.{name}: {in_words(mistake)} (got {brief(mistake['input'])})") from None
    network.round_policy()
    return network
