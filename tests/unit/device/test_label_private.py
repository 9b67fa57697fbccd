"""Labels that never leave the device: the last layer and the loss are there, the server has the middle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import gapsl
from gapsl.common.errors import InputError
from gapsl.models import CutError
from gapsl.models.cut import behead
from gapsl.models.device_files import devices_in, read_devices
from gapsl.options.losses import HeadLoss

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "small",
    "width": 0.5,
    "devices": 3,
    "batch_size": 8,
    "rounds": 6,
    "train_samples": 300,
    "test_samples": 60,
}


def trained(**settings: Any) -> dict[str, Any]:
    result = gapsl.train(**{**SMALL, **settings})
    assert result is not None
    return result


def test_with_one_device_it_is_the_same_training_as_with_labels_at_the_server() -> None:
    alone = {"method": "psl", "devices": 1, "partition": "iid", "rounds": 20}
    plain, headed = trained(**alone).final, trained(**alone, labels="device").final
    assert headed.test_loss == plain.test_loss
    assert headed.device_accuracy == plain.device_accuracy
    assert headed.drift == plain.drift


@pytest.mark.parametrize("gapsl_settings", [{"penalty": "none"}, {"penalty": "finite", "lambda": 0.5}])
def test_gapsl_works_where_the_loss_arrives_as_numbers(gapsl_settings: dict[str, Any]) -> None:
    result = trained(method="gapsl", labels="device", gapsl=gapsl_settings)
    assert result.final.merged is None  # nobody sees heads to average them


def test_the_finite_penalty_asks_kept_devices_once_more() -> None:
    none, finite = (
        trained(method="gapsl", labels="device", gapsl={"penalty": penalty, "lambda": 0.5})
        for penalty in ("none", "finite")
    )
    assert sum(finite.final.bytes_received.values()) > sum(none.final.bytes_received.values())
    assert finite.final.weights_sha256 != none.final.weights_sha256


def test_heads_learn_and_differ_between_devices(tmp_path: Any) -> None:
    gapsl.train(**SMALL, method="psl", labels="device", out=tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").glob("round-*"))[-1]
    heads = [
        {name: t for name, t in tensors.items() if name.startswith("head.model.")}
        for _, tensors in read_devices(newest, devices_in(newest))
    ]
    assert len(heads) == 3 and all(heads)
    assert not torch.equal(*(next(iter(head.values())) for head in heads[:2]))


def test_it_goes_on_from_a_checkpoint_to_the_same_end(tmp_path: Any) -> None:
    whole = trained(method="gapsl", labels="device", gapsl={"penalty": "none"})
    rounds = iter([False, False, True])
    out = tmp_path / "run"
    settings = {**SMALL, "method": "gapsl", "labels": "device", "gapsl": {"penalty": "none"}}
    assert gapsl.train(**settings, out=out, stop=lambda: next(rounds)) is None
    resumed = gapsl.resume(out)
    assert resumed is not None
    assert resumed.final.weights_sha256 == whole.final.weights_sha256


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "sfl"}, r"gapsl(,| and) psl.*, not with sfl"),
        ({"method": "epsl"}, r"gapsl(,| and) psl.*, not with epsl"),
        ({"method": "frozen"}, r"gapsl(,| and) psl.*, not with frozen"),
        ({"method": "gapsl", "gapsl": {"penalty": "exact"}}, r"gapsl\.penalty = none, or finite"),
        ({"method": "psl", "calibration": "prior"}, "set calibration = none, or labels = server"),
        ({"method": "psl", "probes": 2, "norm": "group"}, "set probes = 0"),
        ({"method": "psl", "balance": "classes"}, "set balance = none"),
    ],
)
def test_what_needs_labels_at_the_server_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(labels="device", **settings)


def test_the_head_is_the_last_layer_with_weights_and_what_follows() -> None:
    server = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.Identity())
    inputs = torch.randn(5, 4)
    expected = server(inputs)
    middle, head = behead(server)
    assert [type(child) for child in head.children()] == [nn.Linear, nn.Identity]
    assert torch.equal(head(middle(inputs)), expected)


def test_a_transformer_gives_its_head() -> None:
    parts = gapsl.build_model("vit-micro", classes=5, input_shape=(3, 32, 32))
    tokens = parts.device(torch.randn(2, 3, 32, 32))
    expected = parts.server(tokens)
    middle, head = behead(parts.server)
    assert torch.equal(head(middle(tokens)), expected)


def test_a_server_of_one_layer_has_none_to_give() -> None:
    with pytest.raises(CutError, match="cut earlier"):
        behead(nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))


def test_the_loss_at_the_device_hands_its_derivative_on() -> None:
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 3, dtype=torch.float64)
    loss = HeadLoss(lambda device, seen: (float((seen * weights).sum()), weights))(
        features, torch.zeros(0), 0
    )
    (gradient,) = torch.autograd.grad(3 * loss, features)
    assert torch.allclose(gradient, 3 * weights)
