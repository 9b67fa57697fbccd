"""The section `network`: what is wrong with it is said with what would be right."""

from pathlib import Path

import pytest

from gapsl.cli.join import hosted
from gapsl.common.errors import InputError, Unavailable
from gapsl.network.device import join as joining
from gapsl.network.protocol.settings import Network, RoundPolicy, make_network


def test_the_defaults_wait_for_all_and_change_no_number():
    network = make_network({})
    assert network.round_policy() == RoundPolicy("all")
    assert (network.activations, network.gradients, network.compression) == ("none", "none", "none")
    assert network.device_names(3) == ("device-0", "device-1", "device-2")


def test_devices_may_have_names():
    assert make_network({"names": ["cam", "mic"]}).device_names(2) == ("cam", "mic")


def test_a_deadline_may_wait_for_some():
    network = make_network({"closing": "deadline:3", "least": 2})
    assert network.round_policy() == RoundPolicy("deadline", 3.0, 2)


def test_what_is_stored_is_what_is_read():
    network = make_network(
        {"names": ["cam"], "closing": "fraction:0.5", "activations": "int8", "patience": 5}
    )
    assert make_network(network.model_dump(mode="json")) == network


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"activation": "fp16"}, r"unknown setting 'network\.activation'; did you mean 'activations'\?"),
        ({"codec": "fp16"}, r"unknown setting 'network\.codec'; .*known: .*compression"),
        ({"activations": "fp8"}, r"network\.activations: .*'none', 'fp16', 'bf16' or 'int8'.*got 'fp8'"),
        ({"compression": "gzip"}, r"network\.compression: .*'none' or 'zstd'"),
        ({"closing": "some"}, r"unknown closing 'some'; write all, quorum:SHARE, fraction:SHARE"),
        (
            {"closing": "fraction:2"},
            r"unknown closing 'fraction:2'; write all, .* fraction:SHARE \(0 to 1\)",
        ),
        ({"closing": 3}, r"network\.closing: give text \(got 3\)"),
        ({"least": 0}, r"network\.least: give 1 or more \(got 0\)"),
        ({"patience": 0}, r"network\.patience: give more than 0 \(got 0\)"),
        ({"patience": "long"}, r"network\.patience: .*number.*got 'long'"),
        ({"names": "cam"}, r"network\.names"),
    ],
)
def test_a_mistake_is_named_with_what_may_be_written(values, said):
    with pytest.raises(InputError, match=said):
        make_network(values)


@pytest.mark.parametrize(
    ("names", "count", "said"),
    [
        (["cam"], 2, r"network\.names has 1 devices, devices = 2; make them the same"),
        (["cam", "cam"], 2, r"a device is named twice: cam, cam"),
        (["cam", "../cam"], 2, r"'\.\./cam' cannot be a device's name: "),
        (["cam", ""], 2, r"'' cannot be a device's name: "),
        (["cam", "a b"], 2, r"'a b' cannot be a device's name: "),
    ],
)
def test_names_that_cannot_be_are_refused(names, count, said):
    with pytest.raises(InputError, match=said):
        make_network({"names": names}).device_names(count)


def test_every_setting_says_what_it_means():
    assert all(field.description for field in Network.model_fields.values())


@pytest.mark.parametrize(
    ("names", "devices", "expected"),
    [
        (["a", "b"], None, ["a", "b"]),
        ([], 3, ["device-0", "device-1", "device-2"]),
        (["cam"], 2, ["cam-0", "cam-1"]),
    ],
)
def test_one_process_hosts_the_devices_it_names(
    names: list[str], devices: int | None, expected: list[str]
) -> None:
    assert hosted(names, devices) == expected


@pytest.mark.parametrize(("names", "devices"), [([], None), (["a", "b"], 2)])
def test_a_process_without_clear_names_is_refused(names: list[str], devices: int | None) -> None:
    with pytest.raises(InputError, match="--name"):
        hosted(names, devices)


@pytest.mark.parametrize(
    ("second", "kind"),
    [(InputError("not known either"), InputError), (Unavailable("no room"), Unavailable), (None, InputError)],
)
def test_several_devices_are_refused_once_each(
    second: Exception | None,
    kind: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fates = {"a": InputError("not known"), "b": second}

    def run(agent: joining.Agent) -> str:
        if (error := fates[agent.name]) is not None:
            raise error
        return "the run is finished"

    monkeypatch.setattr(joining.Agent, "run", run)
    failed = sum(error is not None for error in fates.values())
    with caplog.at_level("INFO", "gapsl"), pytest.raises(kind, match=f"^{failed} of 2 devices have ended"):
        joining.join("localhost:1", ["a", "b"], state=tmp_path)
    assert [line.getMessage() for line in caplog.records].count("a: not known") == 1
