"""How a run goes over the network: the section `network` of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.common.settings import Settings
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server.round_policy import HOW, RoundPolicy, parse_round_policy
from gapsl.network.tls.names import why_not_a_name

CODECS: Mapping[str, wire.Codec] = {
    "none": wire.PLAIN,
    "fp16": wire.FP16,
    "bf16": wire.BF16,
    "int8": wire.INT8,
}
COMPRESSIONS: Mapping[str, wire.Compression] = {"none": wire.UNCOMPRESSED, "zstd": wire.ZSTD}

CodecName = Literal["none", "fp16", "bf16", "int8"]


class Network(Settings):
    """What a server agrees on with its devices; settings of training are elsewhere."""

    names: tuple[str, ...] = Field((), description="the devices by name; none: device-0 and so on")
    data: Literal["shared", "own"] = Field(
        "shared", description="every device has its part of `dataset`, or brings its own with join --data"
    )
    closing: str = Field("all", description=f"when a round closes: {HOW}")
    least: int = Field(1, ge=1, description="devices that a deadline waits for, however late it is")
    activations: CodecName = Field("none", description="how devices write activations")
    gradients: CodecName = Field("none", description="how the server writes gradients; of the short, bf16")
    compression: Literal["none", "zstd"] = Field("none", description="what is done to the bytes")
    parameter_server: str = Field("", description="HOST:PORT, for methods that move client-side models")
    patience: float = Field(600, gt=0, description="seconds without any news before the server gives up")

    def round_policy(self) -> RoundPolicy:
        """Return the policy by which rounds close."""
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
    for name in names:
        if (why := why_not_a_name(name)) is not None:
            raise InputError(f"{name!r} cannot be a device's name: {why}")
    return names


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
        raise InputError(f"network.{name}: {mistake['msg']} (got {mistake['input']!r})") from None
    network.round_policy()
    return network
