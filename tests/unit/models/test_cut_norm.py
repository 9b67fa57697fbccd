"""Normalisation at the cut: what it does to activations, and what it leaves alone."""

import copy

import pytest
import torch
from torch import Tensor, nn

from gapsl.data import load_source
from gapsl.models import Split, build_model
from gapsl.models.cut import normalise_at_cut
from gapsl.run.config import make_config
from gapsl.run.parts import take_model

INPUTS = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def parts_of(model: str) -> Split:
    torch.manual_seed(0)
    return build_model(model, classes=10, input_shape=(3, 32, 32), width=1.0)


@pytest.mark.parametrize("model", ["small", "mlp", "vit-micro"])
def test_each_sample_has_mean_0_and_variance_1_whatever_shape_activations_have(model: str) -> None:
    rows = normalise_at_cut(parts_of(model)).device(INPUTS).flatten(1)
    assert rows.mean(dim=1).abs().max() < 1e-5
    assert (rows.var(dim=1, unbiased=False) - 1).abs().max() < 1e-2


def test_rows_of_a_batch_do_not_touch_each_other() -> None:
    device = normalise_at_cut(parts_of("small")).device
    torch.testing.assert_close(device(INPUTS)[:2], device(INPUTS[:2]))


def test_a_part_that_shouts_or_is_shifted_sends_the_same() -> None:
    """So a mark that is a matter of scale does not get through."""

    class Marked(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, inputs: Tensor) -> Tensor:
            marked: Tensor = 7 * self.inner(inputs) + 3
            return marked

    plain = parts_of("small")
    marked = normalise_at_cut(Split(Marked(copy.deepcopy(plain.device)), plain.server)).device
    torch.testing.assert_close(marked(INPUTS), normalise_at_cut(plain).device(INPUTS), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("model", ["small", "vit-micro"])
def test_parameters_keep_their_names_and_there_are_no_more_of_them(model: str) -> None:
    plain = parts_of(model)
    names = list(plain.device.state_dict())
    assert list(normalise_at_cut(plain).device.state_dict()) == names


def test_copies_of_a_part_normalise_too() -> None:
    device = normalise_at_cut(parts_of("small")).device
    assert torch.equal(copy.deepcopy(device)(INPUTS), device(INPUTS))


def test_images_keep_their_order_in_memory() -> None:
    device = normalise_at_cut(parts_of("small")).device
    sent = device(INPUTS.contiguous(memory_format=torch.channels_last))
    assert sent.is_contiguous(memory_format=torch.channels_last)


def test_its_gradient_is_right() -> None:
    torch.manual_seed(0)
    device = normalise_at_cut(
        Split(nn.Sequential(nn.Linear(4, 6), nn.Tanh()).double(), nn.Linear(6, 2))
    ).device
    inputs = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(device, (inputs,))


def test_a_configuration_asks_for_it_by_name() -> None:
    source = load_source("digits")
    inputs = torch.randn(4, *source.input_shape)
    plain = take_model(make_config({}), source, None).device(inputs).detach()
    sent = take_model(make_config({"cut_norm": "sample"}), source, None).device(inputs).detach()
    expected = (plain - plain.mean((1, 2, 3), keepdim=True)) / plain.std(
        (1, 2, 3), unbiased=False, keepdim=True
    )
    torch.testing.assert_close(sent, expected, atol=1e-3, rtol=1e-3)


def test_a_model_of_the_caller_is_normalised_too_and_stays_as_it_was() -> None:
    source = load_source("digits")
    flat = source.input_shape[0] * source.input_shape[1] * source.input_shape[2]
    own = nn.Sequential(nn.Flatten(), nn.Linear(flat, 8), nn.Tanh(), nn.Linear(8, 10))
    inputs = torch.randn(4, *source.input_shape)
    before = own(inputs)
    parts = take_model(make_config({"cut_norm": "sample", "cut": 3}), source, own)
    assert parts.device(inputs).mean(dim=1).abs().max() < 1e-5
    assert torch.equal(own(inputs), before)
