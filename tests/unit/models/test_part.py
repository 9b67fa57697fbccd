"""A part: its step, what is stored of it and comes back, averages and digests."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gapsl.models.part import ModelPart, average, digest, model_bytes, weights_of

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
}


def part_of(optimizer="momentum", rate=lambda t: 0.1, clip=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    return ModelPart(model, OPTIMIZERS[optimizer], rate, clip)


def descend(part, rounds):
    for t in rounds:
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(t))
        part.model(inputs).square().sum().backward()
        part.step(t)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_stored_restores_weights_buffers_and_optimizer_to_the_bit(optimizer):
    first, second = part_of(optimizer), part_of(optimizer)
    descend(first, [1, 2, 3])
    stored = {name: tensor.clone() for name, tensor in first.tensors().items()}
    descend(second, [9])  # what was there before must not matter
    second.load(stored)
    for part in (first, second):
        descend(part, [4, 5, 6])
    assert digest(first.model) == digest(second.model)
    restored = second.tensors()
    assert restored.keys() == first.tensors().keys()
    assert all(torch.equal(t, restored[name]) for name, t in first.tensors().items())


def test_a_part_that_never_stepped_is_restored_without_optimizer_state():
    used = part_of("adamw")
    fresh = part_of("adamw").tensors()
    descend(used, [1, 2])
    used.load({name: tensor.clone() for name, tensor in fresh.items()})
    assert not used.optimizer.state_dict()["state"]
    other = part_of("adamw")
    for part in (used, other):
        descend(part, [3])
    assert digest(used.model) == digest(other.model)


def test_tensors_of_another_model_are_refused():
    other = ModelPart(nn.Linear(2, 2), OPTIMIZERS["sgd"], lambda t: 0.1)
    with pytest.raises((KeyError, RuntimeError)):
        part_of().load(other.tensors())


def test_restored_state_is_not_shared_with_the_file_s_tensors():
    part = part_of()
    descend(part, [1])
    stored = {name: tensor.clone() for name, tensor in part.tensors().items()}
    before = {name: tensor.clone() for name, tensor in stored.items()}
    part.load(stored)
    descend(part, [2])
    assert all(torch.equal(stored[name], tensor) for name, tensor in before.items())


def test_a_step_uses_the_round_s_rate():
    part = part_of("sgd", rate=lambda t: 0.5 if t == 7 else 0.0)
    before = torch.cat([p.detach().flatten() for p in part.parameters])
    part.step(1, torch.ones(part.size))
    assert torch.equal(torch.cat([p.detach().flatten() for p in part.parameters]), before)
    part.step(7, torch.ones(part.size))
    assert torch.equal(torch.cat([p.detach().flatten() for p in part.parameters]), before - 0.5)


def test_a_gradient_longer_than_the_clip_is_shortened_to_it():
    part = part_of("sgd", rate=lambda t: 1.0, clip=2.0)
    before = torch.cat([p.detach().flatten() for p in part.parameters])
    part.step(1, torch.full((part.size,), 10.0))
    moved = before - torch.cat([p.detach().flatten() for p in part.parameters])
    assert float(moved.norm()) == pytest.approx(2.0, rel=1e-5)


def test_a_flat_gradient_is_laid_out_as_the_parameters_are():
    part = part_of("sgd", rate=lambda t: 1.0)
    pieces = part.views(torch.arange(float(part.size)))
    assert [piece.shape for piece in pieces] == [p.shape for p in part.parameters]
    assert torch.cat([piece.flatten() for piece in pieces]).tolist() == list(range(part.size))


def test_parameters_that_do_not_train_stay():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    before = copy.deepcopy(model[0].state_dict())
    part = ModelPart(model, OPTIMIZERS["momentum"], lambda t: 0.1)
    assert part.size == 6
    part.step(1, torch.ones(6))
    assert all(torch.equal(value, model[0].state_dict()[name]) for name, value in before.items())


def test_a_copy_has_the_weights_and_a_life_of_its_own():
    part = part_of()
    descend(part, [1])
    other = part.copy()
    assert digest(other.model) == digest(part.model)
    before = digest(part.model)
    descend(other, [2])
    assert digest(part.model) == before != digest(other.model)


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
    part = part_of()
    before = digest(part.model)
    average([weights_of(part.model)] * 2, [1.0, 2.0])
    assert digest(part.model) == before


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
