"""Cutting a module: which parts come out, and which cuts are refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from gapsl.models import CutError, Split, cuts_of, split


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


class Net(nn.Module):
    """A module whose children run in order, nested, though it is no nn.Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.Conv2d(2, 2, 3), nn.ReLU())
        )
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(2 * 4 * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.flatten(self.features(x))))


class HiddenFlatten(Net):
    def __init__(self) -> None:
        super().__init__()
        del self.flatten

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


class HiddenTanh(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.dropout(self.flatten(self.features(x)))))


class HiddenDropout(Net):
    """In evaluation it is the chain of its children; only in training it is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x), 0.5, self.training)


SAMPLE = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def assert_same_names(parts: Split, module: nn.Module) -> None:
    device, server = parts.device.state_dict().keys(), parts.server.state_dict().keys()
    assert not device & server
    assert device | server == module.state_dict().keys()


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_number_says_how_many_children_go_to_the_device(at: int) -> None:
    module = chain()
    parts = split(module, at)
    assert len(list(parts.device.children())) == at
    assert_same_names(parts, module)
    x = torch.randn(7, 4)
    assert torch.equal(parts.server(parts.device(x)), module(x))


@pytest.mark.parametrize(
    "at", ["features", "features.0", "features.1", "features.2.0", "features.2.1", "flatten", "dropout"]
)
def test_a_dotted_name_cuts_inside_containers_and_keeps_the_names(at: str) -> None:
    module = Net().eval()
    parts = split(module, at, SAMPLE)
    assert_same_names(parts, module)
    assert torch.equal(parts.server(parts.device(SAMPLE)), module(SAMPLE))


def test_the_parts_share_the_modules_parameters() -> None:
    module = chain()
    parts = split(module, 2)
    assert parts.device.get_parameter("0.weight") is module.get_parameter("0.weight")
    assert parts.server.get_parameter("4.bias") is module.get_parameter("4.bias")


def test_a_layer_that_occurs_twice_runs_twice() -> None:
    act = nn.Tanh()
    module = nn.Sequential(nn.Linear(3, 3), act, nn.Linear(3, 3), act)
    parts = split(module, 2)
    x = torch.randn(2, 3)
    assert torch.equal(parts.server(parts.device(x)), module(x))
    assert len(list(parts.server.named_modules(remove_duplicate=False))) == 3


def test_a_module_with_its_own_cut_uses_it() -> None:
    class Own(nn.Module):
        def cut(self, at: int | str) -> Split:
            return Split(nn.Linear(1, int(at)), nn.Linear(int(at), 2))

    assert split(Own(), 7).device.out_features == 7


LAYERS = st.sampled_from(["linear", "tanh"]).map(
    lambda kind: nn.Linear(3, 3) if kind == "linear" else nn.Tanh()
)
CHAINS = st.recursive(
    LAYERS, lambda parts: st.lists(parts, min_size=1, max_size=4).map(lambda ps: nn.Sequential(*ps))
)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHAINS, min_size=1, max_size=4).map(lambda parts: nn.Sequential(*parts)))
def test_every_cut_offered_for_a_nest_of_chains_computes_the_same(module: nn.Sequential) -> None:
    x = torch.ones(2, 3)
    for name in cuts_of(module):
        parts = split(module, name)
        assert_same_names(parts, module)
        assert torch.equal(parts.server(parts.device(x)), module(x))


@pytest.mark.parametrize("at", [0, -1, 5, 99, True])
def test_a_number_out_of_range_is_refused_with_the_range(at: int) -> None:
    with pytest.raises(CutError, match="from 1 to 4"):
        split(chain(), at)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(CutError, match=r"did you mean 'features.1'"):
        split(Net(), "featurs.1", SAMPLE)


@pytest.mark.parametrize(
    ("module", "at", "side"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), 1, "device"),
        (nn.Sequential(nn.Linear(4, 2), nn.ReLU()), 1, "server"),
    ],
)
def test_a_part_without_parameters_is_refused(module: nn.Module, at: int, side: str) -> None:
    with pytest.raises(CutError, match=f"leaves the {side} with no parameters"):
        split(module, at)


def test_a_part_without_layers_is_refused() -> None:
    with pytest.raises(CutError, match=r"leaves the server with no layer.*last layer can be 0, 1, 2, 3$"):
        split(chain(), "4")


def test_only_cuts_that_leave_parameters_on_both_sides_are_offered() -> None:
    names = cuts_of(Net())
    assert names == [
        "features.0",
        "features.1",
        "features.2.0",
        "features.2.1",
        "features.2",
        "features",
        "flatten",
        "dropout",
    ]
    for name in names:
        split(Net(), name, SAMPLE)


def test_a_parameter_outside_the_children_is_refused_by_name() -> None:
    class Token(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(4, 4), nn.Linear(4, 2))
            self.token = nn.Parameter(torch.zeros(4))

    with pytest.raises(CutError, match="token would belong to neither part"):
        split(Token(), 1)


@pytest.mark.parametrize("module", [HiddenFlatten(), HiddenTanh(), HiddenDropout()])
def test_a_module_that_is_no_chain_is_refused_on_a_sample(module: nn.Module) -> None:
    with pytest.raises(CutError, match=r"nn\.Flatten .* or give the two parts directly"):
        split(module, "features.0", SAMPLE)


def test_without_a_sample_only_a_sequential_is_believed_to_be_a_chain() -> None:
    class Overridden(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    for module in (Net(), Overridden(nn.Linear(2, 2), nn.Linear(2, 2))):
        with pytest.raises(CutError, match="pass `sample`"):
            split(module, 1)


def test_trying_the_sample_leaves_no_trace() -> None:
    module = Net()
    module.features[0].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    split(module, "features.0", SAMPLE)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training
    assert not module.features[0].training
