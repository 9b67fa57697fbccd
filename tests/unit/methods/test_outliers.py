"""One device is not the fleet: whoever is far off is left out, and the others are as if it were absent."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import (
    choose,
    method,
    play,
    product_loss,
    server_named,
    sgd,
    uploads_for,
    weights,
)

from gapsl.methods.outliers import FAR, WINDOW, Size, Usual, outliers, reason

LIAR = 1
USUAL = Usual(untrained=math.log(10))


def sizes(*pairs):
    return {device: Size(loss, length) for device, (loss, length) in enumerate(pairs)}


def test_a_fleet_like_any_other_has_no_outlier():
    assert outliers(sizes((2.3, 1.0), (0.01, 0.001), (9.0, 5.0), (2.0, 40.0)), USUAL) == {}


def test_a_loss_is_measured_by_the_others_and_no_less_than_by_an_untrained_model():
    at = FAR * math.log(10)
    assert outliers(sizes((1.0, 1.0), (at, 1.0), (1.0, 1.0)), USUAL) == {}
    assert list(outliers(sizes((1.0, 1.0), (at * 1.01, 1.0), (1.0, 1.0)), USUAL)) == [1]
    assert outliers(sizes((50.0, 1.0), (at * 1.01, 1.0), (50.0, 1.0)), USUAL) == {}


def test_a_length_is_measured_by_the_others_and_no_less_than_by_those_accepted():
    found = sizes((1.0, 0.1), (1.0, 10.1), (1.0, 0.1))
    assert outliers(found, USUAL) == {1: "its gradient has length 10.1, where 0.1 is usual"}
    assert outliers(found, replace(USUAL, lengths=[0.1, 0.2, 5.0])) == {}
    assert outliers(sizes((1.0, 0.1), (1.0, 10.0), (1.0, 0.1)), USUAL) == {}


def test_where_the_others_gradients_are_zero_nothing_is_too_long():
    assert outliers(sizes((1.0, 0.0), (1.0, 3.0), (1.0, 0.0)), USUAL) == {}


def test_a_cross_entropy_is_not_negative_other_losses_may_be():
    found = sizes((1.0, 1.0), (-0.1, 1.0), (1.0, 1.0))
    assert outliers(found, USUAL) == {}
    assert outliers(found, replace(USUAL, cross_entropy=True)) == {
        1: "its loss is -0.1, and no cross-entropy is negative"
    }
    rounded = sizes((1.0, 1.0), (-1e-8, 1.0), (1.0, 1.0))
    assert outliers(rounded, replace(USUAL, cross_entropy=True)) == {}, "as `gapsl diagnose` sees it"


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_with_fewer_than_three_devices_only_finiteness_counts(loss):
    strict = replace(USUAL, cross_entropy=True)
    assert outliers(sizes((1e30, 1e30), (-1.0, 1.0)), strict) == {}
    assert list(outliers(sizes((1.0, 1.0), (loss, 1.0)), strict)) == [1]
    assert list(outliers({0: Size(1.0, 1.0, finite=False)}, strict)) == [0]


def test_those_that_are_not_finite_are_no_measure():
    found = sizes((1.0, 1.0), (math.nan, 1.0), (1.0, math.inf), (1.0, 99.0), (1.0, 1.0))
    assert list(outliers(found, USUAL)) == [1, 2]


def test_a_liar_makes_no_honest_device_an_outlier():
    for count in (3, 4, 10):
        honest = [(2.0 + 0.1 * i, 1.0 + i) for i in range(count - 1)]
        assert list(outliers(sizes(*honest, (1e28, 1e30)), USUAL)) == [count - 1]


def test_one_that_comes_in_turn_is_measured_by_those_before_it():
    first = reason(Size(1e9, 1.0), [], replace(USUAL, cross_entropy=True), devices=3)
    assert first is not None and "loss" in first
    assert reason(Size(1e9, 1.0), [], USUAL, devices=3) is None, "a loss of one's own may be large"
    assert reason(Size(2.0, 1e9), [], USUAL, devices=3) is None, "there is nothing to measure by yet"
    later = reason(Size(2.0, 1e9), [Size(2.0, 1.0)], USUAL, devices=3)
    assert later is not None and "length" in later


VALUES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 300.0, 1e5, -1.0, math.nan, math.inf])


@given(
    st.lists(st.builds(Size, VALUES, VALUES, st.booleans()), min_size=3, max_size=9),
    st.lists(VALUES, max_size=4),
    st.booleans(),
)
def test_each_is_measured_by_all_the_others(found, lengths, cross_entropy):
    usual = Usual(math.log(10), lengths, cross_entropy)
    one_by_one = {
        device: why
        for device, size in enumerate(found)
        if (why := reason(size, found[:device] + found[device + 1 :], usual, devices=len(found)))
    }
    assert outliers(dict(enumerate(found)), usual) == one_by_one


def lying(uploads, factor):
    broken = list(uploads)
    broken[LIAR] = replace(uploads[LIAR], activations=uploads[LIAR].activations * factor)
    return broken


def settings_for(name):
    return {"exclusion": "none"} if name.startswith("gapsl") else {}


@pytest.mark.parametrize("factor", [1e5, 1e30])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(
            (name, {})
            for name in ("psl", "papsl", "gapsl", "frozen", "sfl", "gapsl/non-gda", "gapsl/rand-gda")
        ),
        *(
            ("epsl", {"phi": phi, "hidden": hidden})
            for phi in (0.3, 1.0)
            for hidden in ("mean", "per-device")
        ),
    ],
)
def test_the_others_are_as_if_the_liar_were_absent(name, settings, factor):
    model, uploads = server_named("convolution-relu", torch.float32), uploads_for("convolution-relu")
    uploads = [replace(upload, activations=upload.activations.float()) for upload in uploads]
    with_it, without = method(name, model, **settings), method(name, model, **settings)
    outcome = play(with_it, lying(uploads, factor))
    clean = play(without, [u for u in uploads if u.device != LIAR])
    assert list(outcome.skipped) == [LIAR] and "is usual" in outcome.skipped[LIAR]
    assert torch.equal(weights(with_it), weights(without))
    assert outcome.losses == clean.losses and outcome.selection == clean.selection
    for device, reply in clean.replies.items():
        assert torch.equal(outcome.replies[device].gradient, reply.gradient)


def test_devices_in_turn_leave_it_out_once_they_know_what_is_usual():
    model, uploads = server_named("convolution-relu"), uploads_for("convolution-relu", devices=4)
    strategy = method("sfl-v2", model)
    assert play(strategy, uploads).skipped == {}
    outcome = play(strategy, lying(uploads, 1e6), round=2)
    assert list(outcome.skipped) == [LIAR]
    assert 0 not in strategy.active or LIAR in strategy.active  # the first round's averaging is still due


def test_the_lengths_that_were_accepted_are_the_floor_and_survive_a_restart():
    """Alone in a round of small gradients, a length as usual before is no outlier."""
    usual, small = [[1.0, 0.0]] * 3, [[1e-3, 0.0], [1.0, 0.0], [1e-3, 0.0]]
    model, uploads = choose(usual)
    strategy = method("psl", model, devices=3, loss=product_loss)
    play(strategy, uploads)
    stored = json.loads(json.dumps(strategy.state()))
    assert stored["lengths"] == [1.0, 1.0, 1.0]
    _, later = choose(small, round=2)
    assert play(strategy, later, round=2).skipped == {}
    restarted = method("psl", model, devices=3, loss=product_loss)
    restarted.load_state(stored)
    assert play(restarted, later, round=2).skipped == {}
    fresh = method("psl", model, devices=3, loss=product_loss)
    assert list(play(fresh, later, round=2).skipped) == [LIAR]
    assert restarted.lengths == strategy.lengths


@pytest.mark.parametrize("name", ["psl", "gapsl", "sfl", "vanilla"])
def test_a_checkpoint_without_lengths_is_read(name):
    strategy = method(name, server_named("tanh"))
    state = strategy.state()
    del state["lengths"]
    strategy.load_state(state)
    assert list(strategy.lengths) == []


def test_no_more_lengths_are_kept_than_the_median_is_over():
    strategy = method("psl", server_named("tanh"))
    strategy.lengths.extend(range(2 * WINDOW))
    assert len(strategy.state()["lengths"]) == WINDOW


@pytest.mark.parametrize("name", ["psl", "gapsl", "gapsl/non-gda"])
def test_a_step_that_would_leave_no_numbers_is_not_taken_and_says_who_was_in_it(name):
    rows = [[1e38, 0.0], [3e38, 0.0], [2e38, 0.0]]
    model, uploads = choose(rows, dtype=torch.float32)
    settings = {"exclusion": "none", "k_min": 1.0, "k_max": 1.0} if name != "psl" else {}
    strategy = method(
        name,
        model,
        devices=3,
        loss=product_loss,
        reduction="sum",
        optimizer=sgd(10.0, 0.9),
        lr=10.0,
        **settings,
    )
    before = {key: value.clone() for key, value in strategy.server.part.tensors().items()}
    outcome = play(strategy, uploads)
    after = strategy.server.part.tensors()
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in after)
    assert list(outcome.skipped) == [1, 2, 0], "longest first"
    assert "not finite" in outcome.skipped[1] and "3e+38" in outcome.skipped[1]
    assert outcome.losses == {} and not any(reply.step for reply in outcome.replies.values())


def test_a_large_step_that_leaves_numbers_is_taken():
    model, uploads = choose([[1e30, 0.0]] * 3, dtype=torch.float32)
    strategy = method("psl", model, devices=3, loss=product_loss)
    assert play(strategy, uploads).skipped == {}
    assert float(weights(strategy)[0]) == pytest.approx(-1e30)


@pytest.mark.parametrize("name", ["sfl", "sfl-v2"])
def test_where_devices_have_steps_of_their_own_only_the_step_that_fails_is_not_taken(name):
    rows = [[3e37, 0.0], [3e38, 0.0], [3e37, 0.0]]
    model, uploads = choose(rows, dtype=torch.float32, weight=[0.0, 0.0])
    strategy = method(name, model, devices=3, loss=product_loss, optimizer=sgd(2.0), lr=2.0)
    outcome = play(strategy, uploads)
    assert 1 in outcome.skipped and "not finite" in outcome.skipped[1]
    assert torch.isfinite(weights(strategy)).all()


def test_what_an_optimizer_keeps_stays_finite_too():
    """The square of 1e30 does not fit, and AdamW would keep an infinity for good."""
    model, uploads = choose([[1e30, 0.0]] * 3, dtype=torch.float32)
    strategy = method("psl", model, devices=3, loss=product_loss, optimizer=torch.optim.AdamW)
    assert len(play(strategy, uploads).skipped) == 3
    assert strategy.server.part.optimizer.state_dict()["state"] == {}
