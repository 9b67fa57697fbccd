"""A half: its step, what is stored of it and comes back, averages and digests."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gapsl.models.half import Half, average, digest, model_bytes, weights_of

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
}


def half_of(optimizer="momentum", rate=lambda t: 0.1, clip=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    return Half(model, OPTIMIZERS[optimizer], rate, clip)


def descend(half, rounds):
    for t in rounds:
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(t))
        half.model(inputs).square().sum().backward()
        half.step(t)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_stored_restores_weights_buffers_and_optimizer_to_the_bit(optimizer):
    first, second = half_of(optimizer), half_of(optimizer)
    descend(first, [1, 2, 3])
    stored = {name: tensor.clone() for name, tensor in first.tensors().items()}
    descend(second, [9])  # what was there before must not matter
    second.load(stored)
    for half in (first, second):
        descend(half, [4, 5, 6])
    assert digest(first.model) == digest(second.model)
    restored = second.tensors()
    assert restored.keys() == first.tensors().keys()
    assert all(torch.equal(t, restored[name]) for name, t in first.tensors().items())


def test_a_half_that_never_stepped_is_restored_without_optimizer_state():
    used = half_of("adamw")
    fresh = half_of("adamw").tensors()
    descend(used, [1, 2])
    used.load({name: tensor.clone() for name, tensor in fresh.items()})
    assert not used.optimizer.state_dict()["state"]
    other = half_of("adamw")
    for half in (used, other):
        descend(half, [3])
    assert digest(used.model) == digest(other.model)


def test_tensors_of_another_model_are_refused():
    other = Half(nn.Linear(2, 2), OPTIMIZERS["sgd"], lambda t: 0.1)
    with pytest.raises((KeyError, RuntimeError)):
        half_of().load(other.tensors())


def test_restored_state_is_not_shared_with_the_file_s_tensors():
    half = half_of()
    descend(half, [1])
    stored = {name: tensor.clone() for name, tensor in half.tensors().items()}
    before = {name: tensor.clone() for name, tensor in stored.items()}
    half.load(stored)
    descend(half, [2])
    assert all(torch.equal(stored[name], tensor) for name, tensor in before.items())


def test_a_step_uses_the_round_s_rate():
    half = half_of("sgd", rate=lambda t: 0.5 if t == 7 else 0.0)
    before = torch.cat([p.detach().flatten() for p in half.parameters])
    half.step(1, torch.ones(half.size))
    assert torch.equal(torch.cat([p.detach().flatten() for p in half.parameters]), before)
    half.step(7, torch.ones(half.size))
    assert torch.equal(torch.cat([p.detach().flatten() for p in half.parameters]), before - 0.5)


def test_a_gradient_longer_than_the_clip_is_shortened_to_it():
    half = half_of("sgd", rate=lambda t: 1.0, clip=2.0)
    before = torch.cat([p.detach().flatten() for p in half.parameters])
    half.step(1, torch.full((half.size,), 10.0))
    moved = before - torch.cat([p.detach().flatten() for p in half.parameters])
    assert float(moved.norm()) == pytest.approx(2.0, rel=1e-5)


def test_a_flat_gradient_is_laid_out_as_the_parameters_are():
    half = half_of("sgd", rate=lambda t: 1.0)
    pieces = half.views(torch.arange(float(half.size)))
    assert [piece.shape for piece in pieces] == [p.shape for p in half.parameters]
    assert torch.cat([piece.flatten() for piece in pieces]).tolist() == list(range(half.size))


def test_parameters_that_do_not_train_stay():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    before = copy.deepcopy(model[0].state_dict())
    half = Half(model, OPTIMIZERS["momentum"], lambda t: 0.1)
    assert half.size == 6
    half.step(1, torch.ones(6))
    assert all(torch.equal(value, model[0].state_dict()[name]) for name, value in before.items())


def test_a_copy_has_the_weights_and_a_life_of_its_own():
    half = half_of()
    descend(half, [1])
    other = half.copy()
    assert digest(other.model) == digest(half.model)
    before = digest(half.model)
    descend(other, [2])
    assert digest(half.model) == before != digest(other.model)


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(-5, 5)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_an_average_is_the_weighted_mean(pairs):
    models = [{"w": torch.tensor([value, -value], dtype=torch.float64)} for _, value in pairs]
    merged = average(models, [weight for weight, _ in pairs])
    total = sum(weight for weight, _ in pairs)
    expected = sum(weight * value for weight, value in pairs) / total
    assert merged["w"].tolist() == pytest.approx([expected, -expected], abs=1e-13)


def test_counts_have_no_mean_and_the_largest_is_taken():
    models = [{"n": torch.tensor(n)} for n in (3, 9, 4)]
    merged = average(models, [1.0, 1.0, 1.0])
    assert merged["n"] == 9
    assert merged["n"].dtype == torch.int64


def test_an_average_leaves_its_models_alone():
    half = half_of()
    before = digest(half.model)
    average([weights_of(half.model)] * 2, [1.0, 2.0])
    assert digest(half.model) == before


def test_a_digest_sees_every_bit_name_and_shape():
    model = nn.Linear(2, 3)
    before = digest(model)
    assert digest(copy.deepcopy(model)) == before
    with torch.no_grad():
        model.weight[0, 0] = torch.nextafter(model.weight[0, 0], torch.tensor(9.0))
    assert digest(model) != before
    flat, tall = nn.ParameterDict({"a": torch.zeros(6)}), nn.ParameterDict({"a": torch.zeros(2, 3)})
    assert digest(flat) != digest(tall)
    assert digest(flat) != digest(nn.ParameterDict({"b": torch.zeros(6)}))


def test_a_model_s_bytes_are_its_weights_and_buffers():
    assert model_bytes(nn.Linear(2, 3)) == 4 * 9
    assert model_bytes(nn.BatchNorm1d(3)) == 4 * 12 + 8
