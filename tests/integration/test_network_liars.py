"""A listed device that lies in well-formed messages: the run ends for the others; who is far off is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from liar import HeadLie, Liar
from network import Served, trained_over_loopback
from processes import records_of
from torch import Tensor

import gapsl
from gapsl.run.api import compose

HONEST, LIAR = ("device-0", "device-1", "device-2"), 3
FLEET: dict[str, Any] = {
    "dataset": "digits", "model": "mlp", "width": 0.25, "devices": 4, "partition": "iid", "batch_size": 8,
    "train_samples": 240, "test_samples": 40, "rounds": 10, "evaluate_every": 10,
}  # fmt: skip
PROBED = {"probes": 2, "probe_steps": 2, "probe_leaders": 0.5}


def times(factor: float) -> Any:
    return lambda activations, labels: (activations * factor, labels)


class Replay:
    """Sends what it was asked for first, again and again."""

    def __init__(self) -> None:
        self.first: tuple[Tensor, Tensor] | None = None

    def __call__(self, activations: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.first = self.first or (activations.clone(), labels.clone())
        return self.first


def wrong_labels(activations: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return activations, torch.where(labels < 0, labels, (labels + 1) % 10)  # probes have none


class Warned(gapsl.Observer):
    """Keeps what a person is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def warned(self, message: str) -> None:
        self.messages.append(message)


def served_with(tmp_path: Path, words: dict[str, Any], **lies: Any) -> tuple[Any, list[Any], list[str]]:
    """Serve a run to three honest devices and a liar; returns its result, records and warnings."""
    warned = Warned()
    served = Served(compose(words={**FLEET, **words}), tmp_path, observers=[warned])
    served.devices.start(served.port, *HONEST)
    liar = Liar(served.port, f"device-{LIAR}", **lies)
    result = served.result()
    assert liar.join() == "the run is finished"
    served.devices.join()
    assert {served.devices.ended[name] for name in HONEST} == {"the run is finished"}
    return result, records_of(tmp_path / "run"), warned.messages


@pytest.mark.parametrize(
    "words",
    [{"method": "psl"}, {"method": "gapsl", "gapsl": {"exclusion": "none"}}, {"method": "psl", **PROBED}],
    ids=["psl", "gapsl", "probes"],
)
def test_lies_at_the_cut_end_nobody_s_run_and_huge_ones_are_named(
    words: dict[str, Any], tmp_path: Path
) -> None:
    replay = Replay()
    lies = {
        1: replay, 2: times(1e30), 3: times(1e4), 4: times(1e-30), 6: times(-1.0), 7: replay, 8: wrong_labels,
        5: lambda activations, labels: (torch.ones_like(activations), labels),
        9: times(float("nan")),
    }  # fmt: skip
    result, records, warnings = served_with(tmp_path, words, lies=lies)
    named = {record.round: dict(record.reasons) for record in records if record.skipped}
    assert list(named) == [2, 3, 9]
    assert all(list(reasons) == [LIAR] for reasons in named.values())
    assert "is usual" in named[2][LIAR] and "not finite" in named[9][LIAR]
    assert [record.skipped for record in records] == [
        (LIAR,) if record.round in named else () for record in records
    ]
    assert result.final.device_min >= 0 and torch.isfinite(torch.tensor(result.final.test_loss))
    assert [message.split(": its")[0] for message in warnings] == [
        f"round {round}: device {LIAR} skipped" for round in (2, 9)
    ], "of rounds running the first is told"


def test_lies_about_the_loss_are_named_where_labels_are_on_the_device(tmp_path: Path) -> None:
    lies = {
        2: HeadLie(-1.0, 0.01), 3: HeadLie(1e9, 0.01), 4: HeadLie(2.3, 1e6), 5: HeadLie(0.0, 0.0),
        6: HeadLie(float("nan"), 0.01), 7: HeadLie(2.3, 1e-30),
    }  # fmt: skip
    _, records, _ = served_with(tmp_path, {"method": "psl", "labels": "device"}, at_head=lies)
    named = {record.round: record.reasons[LIAR] for record in records if record.skipped == (LIAR,)}
    assert [record.round for record in records if record.skipped] == list(named) == [2, 3, 4, 6]
    assert "negative" in named[2] and "loss is 1e+09" in named[3] and "length" in named[4]


def test_how_long_devices_take_is_recorded_and_lies_about_it_are_not(tmp_path: Path) -> None:
    lies = {1: float("nan"), 2: float("inf"), 3: -1.0, 4: 1e30, 5: -float("inf")}
    _, records, _ = served_with(tmp_path, {"method": "psl", "rounds": 5}, seconds=lies)
    for record in records:
        spent = record.device_seconds
        assert set(spent) == {"forward", "backward", "server", "waiting"}
        assert all(set(own) == {0, 1, 2, LIAR} for own in spent.values())
        assert spent["forward"][LIAR] == spent["backward"][LIAR] == 0
        assert min(spent["forward"][device] for device in range(3)) > 0
        assert all((spent["backward"][device] > 0) == (record.round > 1) for device in range(3))
        assert min(spent["server"].values()) > 0 and min(spent["waiting"].values()) >= 0


@pytest.mark.parametrize("robust", ["clip", "median", "trimmed"])
def test_a_robust_step_is_the_same_over_the_network(robust: str, tmp_path: Path) -> None:
    config = compose(words={**FLEET, "method": "gapsl", "robust": robust, "rounds": 4, "faults": "scale:1"})
    assert (
        trained_over_loopback(config, tmp_path).final.weights_sha256
        == gapsl.train(config).final.weights_sha256
    )
