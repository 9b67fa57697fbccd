"""Vanilla SL, SFL v1 and v2, frozen: the server's side of a round."""

import copy
from itertools import permutations

import pytest
import torch
from tiny import flat, method, play, server_named, sgd, uploads_for, weights
from torch import nn

from gapsl.methods import Exchange


def descend(model, upload, lr=1.0):
    """One plain SGD step of a model on one upload; returns the gradient at the cut."""
    activations = upload.activations.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(activations), upload.labels)
    *gradients, at_cut = torch.autograd.grad(loss, [*model.parameters(), activations])
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= lr * gradient
    return at_cut


def test_sfl_v1_trains_a_copy_for_each_device():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    sfl = method("sfl", model, lr=0.5, optimizer=sgd(0.5))
    outcome = play(sfl, uploads)
    for upload in uploads:
        own = copy.deepcopy(model)
        at_cut = descend(own, upload, lr=0.5)
        assert torch.allclose(flat(sfl.copies[upload.device].part.model), flat(own), rtol=1e-14)
        assert torch.equal(outcome.replies[upload.device].gradient, at_cut)


@pytest.mark.parametrize("choice", ["samples", "uniform"])
def test_sfl_v1_averages_the_copies_with_the_client_parts_weights(choice):
    samples = [10, 20, 30, 40]
    model, uploads = server_named("tanh"), uploads_for("tanh")
    sfl = method("sfl", model, samples=samples, interval=1, weights=choice)
    play(sfl, uploads)
    copies = [flat(passes.part.model) for passes in sfl.copies.values()]
    shares = sfl.averaging(1)
    assert sfl.averaging(1) == shares, "a question changes nothing"
    sfl.average(shares)
    expected = samples if choice == "samples" else [1, 1, 1, 1]
    assert [shares[d] / sum(shares.values()) for d in range(4)] == pytest.approx(
        [n / sum(expected) for n in expected], rel=1e-15
    )
    mean = sum(n / sum(expected) * c for n, c in zip(expected, copies, strict=True))
    for passes in sfl.copies.values():
        assert torch.allclose(flat(passes.part.model), mean, rtol=1e-14)


@pytest.mark.parametrize("name", ["sfl", "sfl-v2"])
@pytest.mark.parametrize(("interval", "expected"), [(None, [3, 6]), (2, [2, 4, 6]), (1, [1, 2, 3, 4, 5, 6])])
def test_averaging_happens_at_the_end_of_every_epoch_or_interval(name, interval, expected):
    strategy = method(name, server_named("tanh"), rounds_per_epoch=3, interval=interval)
    averaged = []
    for t in range(1, 7):
        play(strategy, uploads_for("tanh", round=t), round=t)
        if (shares := strategy.averaging(t)) is not None:
            strategy.average(shares)
            averaged.append(t)
    assert averaged == expected


@pytest.mark.parametrize("name", ["sfl", "sfl-v2"])
def test_only_devices_that_trained_since_the_last_averaging_count(name):
    strategy = method(name, server_named("tanh"), interval=2, samples=[10, 20, 30, 40])
    uploads = uploads_for("tanh")
    play(strategy, uploads[1:3], round=1)
    assert strategy.averaging(1) is None
    play(strategy, uploads[2:3], round=2)
    assert strategy.averaging(2) == {1: 20.0, 2: 30.0}


def test_sfl_v1_s_angles_are_at_the_common_weights_also_between_averagings():
    model = server_named("tanh")
    sfl = method("sfl", model, samples=[10, 20, 30, 40], rounds_per_epoch=9)
    first, second = uploads_for("tanh", seed=1), uploads_for("tanh", seed=2, round=2)
    start = play(method("psl", model), first).angles
    assert torch.allclose(play(sfl, first, measure=True).angles, start, rtol=1e-12)
    mean = sum(n / 100 * flat(sfl.copies[d].part.model) for d, n in enumerate([10, 20, 30, 40]))
    nn.utils.vector_to_parameters(mean, list(model.parameters()))
    expected = play(method("psl", model), second).angles
    assert torch.allclose(play(sfl, second, round=2, measure=True).angles, expected, rtol=1e-9, atol=1e-9)


def test_measuring_sfl_s_angles_changes_no_weight():
    model = server_named("batch-norm")
    measured, plain = method("sfl", model, rounds_per_epoch=9), method("sfl", model, rounds_per_epoch=9)
    for t in (1, 2, 3):
        uploads = uploads_for("batch-norm", seed=t, round=t)
        play(measured, uploads, round=t, measure=True)
        play(plain, uploads, round=t)
    assert torch.equal(weights(measured), weights(plain))


def orders_that_explain(strategy, model, uploads, t):
    """The orders of sequential steps that lead to the weights the strategy has."""
    found = []
    for order in permutations(range(len(uploads))):
        own = copy.deepcopy(model)
        for device in order:
            descend(own, uploads[device])
        if torch.allclose(flat(own), weights(strategy), rtol=1e-12, atol=1e-14):
            found.append(order)
    return found


def test_sfl_v2_takes_the_devices_one_after_another_in_a_random_order_every_round():
    model = server_named("tanh")
    strategy = method("sfl-v2", model, devices=3, rounds_per_epoch=99)
    orders = []
    for t in range(1, 9):
        model.load_state_dict(strategy.server.part.model.state_dict())
        uploads = uploads_for("tanh", devices=3, seed=t, round=t)
        play(strategy, uploads, round=t)
        (order,) = orders_that_explain(strategy, model, uploads, t)
        orders.append(order)
    assert len(set(orders)) > 2


def devices_of(strategy, rounds, present=(0, 1, 2)):
    return [[e.devices[0] for e in strategy.exchanges(t, present)] for t in rounds]


def test_a_vanilla_turn_is_one_local_pass():
    """Two mini-batches a pass here; a round is as many mini-batches as there are devices."""
    vanilla = method("vanilla", server_named("tanh"), devices=3)
    assert devices_of(vanilla, [1, 2, 3, 4]) == [[0, 0, 1], [1, 2, 2], [0, 0, 1], [1, 2, 2]]


def test_a_vanilla_turn_of_one_batch_goes_round():
    vanilla = method("vanilla", server_named("tanh"), devices=3, turn="batch")
    assert devices_of(vanilla, [1, 2]) == [[0, 1, 2], [0, 1, 2]]


def test_vanilla_hands_the_model_from_each_device_to_the_next():
    vanilla = method("vanilla", server_named("tanh"), devices=3)
    moves = [e.hand_over for t in (1, 2, 3) for e in vanilla.exchanges(t, (0, 1, 2))]
    assert moves == [None, None, (0, 1), None, (1, 2), None, (2, 0), None, (0, 1)]


def test_vanilla_passes_over_who_is_absent_and_fetches_the_model_from_there():
    vanilla = method("vanilla", server_named("tanh"), devices=3)
    assert devices_of(vanilla, [1], present=(0, 1)) == [[0, 0]]
    moves = [(e.devices, e.hand_over) for e in vanilla.exchanges(2, (0, 2))]
    assert moves == [((2,), (0, 2)), ((2,), None)]


def test_a_vanilla_step_is_one_plain_step_on_one_device():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    vanilla = method("vanilla", model)
    own = copy.deepcopy(model)
    for device in (2, 0):
        outcome = vanilla.step(1, Exchange((device,)), [uploads[device]])
        assert torch.equal(outcome.replies[device].gradient, descend(own, uploads[device]))
    assert torch.allclose(weights(vanilla), flat(own), rtol=1e-14)


def test_frozen_trains_the_server_as_psl_and_asks_nobody_to_learn():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    frozen, psl = method("frozen", model), method("psl", model)
    assert not any(e.learn for e in frozen.exchanges(1, (0, 1, 2, 3)))
    assert play(frozen, uploads).replies == {}
    play(psl, uploads)
    assert torch.equal(weights(frozen), weights(psl))


def test_central_takes_as_many_batches_a_round_as_the_devices_would():
    central = method("central", server_named("tanh"), devices=4)
    exchanges = list(central.exchanges(1, (0,)))
    assert [e.turn for e in exchanges] == [0, 1, 2, 3]
    assert {e.devices for e in exchanges} == {(0,)}
