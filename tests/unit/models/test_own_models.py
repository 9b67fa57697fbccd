"""Registering a model of one's own, and describing a cut."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from gapsl.common.errors import InputError
from gapsl.models import MODELS, CutError, Split, build_model, check_cut, register_model


@pytest.fixture
def name() -> Iterator[str]:
    """A name that is free again after the test."""
    yield "mine"
    MODELS._entries.pop("mine", None)


def body(classes: int, input_shape: tuple[int, ...]) -> nn.Sequential:
    return nn.Sequential(nn.Linear(input_shape[0], 8), nn.ReLU(), nn.Linear(8, classes))


def test_an_own_model_is_built_by_name(name: str) -> None:
    register_model(name, body, default_cut=2, summary="a test's")
    split = build_model(name, classes=3, input_shape=(4,))
    assert list(split.device.state_dict()) == ["0.weight", "0.bias"]
    shorter = build_model(name, classes=3, input_shape=(4,), cut="1")
    assert [type(layer) for layer in shorter.device.children()] == [nn.Linear]


def test_an_own_model_gets_the_options_it_names_and_no_others(name: str) -> None:
    seen = {}

    def builder(classes: int, input_shape: tuple[int, ...], width: float = 1.0) -> nn.Sequential:
        seen["width"] = width
        return body(classes, input_shape)

    register_model(name, builder, default_cut=2, summary="a test's")
    build_model(name, classes=3, input_shape=(4,), width=0.5)
    assert seen == {"width": 0.5}
    with pytest.raises(InputError, match=r"takes no norm; leave it out \(it takes: width\)"):
        build_model(name, classes=3, input_shape=(4,), norm="batch")


def test_an_own_model_that_is_no_chain_is_refused_when_built(name: str) -> None:
    class Skips(nn.Module):
        def __init__(self, classes: int, input_shape: tuple[int, ...]) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(input_shape[0], classes), nn.Linear(classes, classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return x + self.second(x)

    register_model(name, Skips, default_cut=1, summary="a test's")
    with pytest.raises(CutError, match="Skips is not the chain of its children"):
        build_model(name, classes=3, input_shape=(4,))


def test_an_own_pair_needs_no_cut(name: str) -> None:
    def pair(classes: int, input_shape: tuple[int, ...]) -> Split:
        return Split(nn.Linear(input_shape[0], 8), nn.Linear(8, classes))

    register_model(name, pair, summary="a test's")
    assert build_model(name, classes=3, input_shape=(4,)).device.out_features == 8
    with pytest.raises(InputError, match="leave the cut out"):
        build_model(name, classes=3, input_shape=(4,), cut=1)


def test_a_model_without_a_default_cut_asks_for_one(name: str) -> None:
    register_model(name, body, summary="a test's")
    with pytest.raises(InputError, match="give one"):
        build_model(name, classes=3, input_shape=(4,))


def test_a_name_is_registered_once() -> None:
    with pytest.raises(InputError, match="registered already"):
        register_model("vgg16", body, default_cut=1, summary="another")


def test_a_report_lists_every_parameter_once_and_in_order() -> None:
    split = build_model("vit-micro", classes=3, input_shape=(3, 8, 8), cut=2)
    report = check_cut(split, input_shape=(3, 8, 8), classes=3, batch_size=2)
    for part in (report.device, report.server):
        assert sum(layer.parameters for layer in part.layers) == part.parameters
    names = [layer.name for part in (report.device, report.server) for layer in part.layers]
    assert [name for name in names if name.startswith("blocks")] == [f"blocks.{k}" for k in range(6)]
    assert (report.activation_shape, report.activation_bytes) == ((2, 5, 192), 7680)


def test_a_report_opens_chains() -> None:
    split = build_model("small", classes=3, input_shape=(1, 8, 8))
    device = check_cut(split, input_shape=(1, 8, 8), classes=3, batch_size=2).device.layers
    assert [layer.name for layer in device] == ["stages.0.conv", "stages.0.relu", "stages.0.pool"]
    assert device[0].kind.startswith("Conv2d(1, 16")
    assert [layer.parameters for layer in device] == [160, 0, 0]
