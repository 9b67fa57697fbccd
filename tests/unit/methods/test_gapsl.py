"""A round of GAPSL as SPEC tells it: who leads, who is kept, what the server steps on, who gets what."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import choose, chosen_round, method, play, product_loss, server_named, uploads_for, weights

# Three that agree and one that does not; with eta 0 the last is excluded.
ROWS = [[2.0, 0.1], [2.0, -0.1], [2.0, 0.0], [-0.5, 3.0]]
FIRST_TWO = {"k_min": 0.5, "k_max": 0.5, "eta": 0.0, "lambda": 0.0}


def degrees(*angles):
    return [[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in angles]


def total(rows, which):
    return torch.tensor([rows[i] for i in which], dtype=torch.float64).sum(dim=0)


def test_the_server_steps_on_the_mean_of_the_kept_gradients():
    outcome, step = chosen_round("gapsl", ROWS, **FIRST_TWO)
    assert outcome.selection.kept == (0, 1, 2)
    assert torch.allclose(step, total(ROWS, [0, 1, 2]) / 3, rtol=1e-14)


def test_under_sum_the_server_steps_on_the_sum_of_the_kept_gradients():
    _, step = chosen_round("gapsl", ROWS, reduction="sum", **FIRST_TWO)
    assert torch.allclose(step, total(ROWS, [0, 1, 2]), rtol=1e-14)


@pytest.mark.parametrize(
    ("reduction", "device_gradient", "scale"),
    [
        ("mean", "follow", 1 / 3),
        ("mean", "own", 1.0),
        ("samples", "own", 1.0),
        ("sum", "follow", 1.0),
        ("sum", "own", 1.0),
    ],
)
def test_replies_carry_the_round_s_loss_s_scale_or_their_own(reduction, device_gradient, scale):
    outcome, _ = chosen_round(
        "gapsl", ROWS, reduction=reduction, device_gradient=device_gradient, **FIRST_TWO
    )
    for device in (0, 1, 2):
        assert outcome.replies[device].step
        assert outcome.replies[device].gradient.flatten().tolist() == [scale, scale]  # w is (1, 1)


def test_by_amount_of_data_devices_count_by_their_share_of_what_the_kept_ones_have():
    samples = [10, 30, 60, 900]  # the last is not kept
    outcome, step = chosen_round("gapsl", ROWS, reduction="samples", samples=samples, **FIRST_TWO)
    assert outcome.selection.kept == (0, 1, 2)
    assert torch.allclose(
        step, torch.tensor([0.1, 0.3, 0.6]).double() @ torch.tensor(ROWS[:3]).double(), rtol=1e-6
    )
    for device, share in enumerate((0.1, 0.3, 0.6)):
        assert outcome.replies[device].gradient.flatten().tolist() == pytest.approx([share, share])


def test_by_amount_of_data_the_excluded_get_their_own_gradient_at_what_the_kept_get_on_average():
    outcome, _ = chosen_round(
        "gapsl", ROWS, reduction="samples", samples=[10, 30, 60, 900], excluded="plain", **FIRST_TWO
    )
    assert outcome.replies[3].step
    assert outcome.replies[3].gradient.flatten().tolist() == pytest.approx([1 / 3, 1 / 3])


def test_an_excluded_device_gets_a_zero_gradient_and_skips_its_step():
    outcome, _ = chosen_round("gapsl", ROWS, **FIRST_TWO)
    assert not outcome.replies[3].step
    assert not outcome.replies[3].gradient.any()


def test_excluded_plain_gives_the_excluded_their_own_gradient_and_changes_nothing_else():
    skipping, step = chosen_round("gapsl", ROWS, **FIRST_TWO)
    outcome, same = chosen_round("gapsl", ROWS, excluded="plain", **FIRST_TWO)
    assert torch.equal(step, same)
    assert outcome.selection == skipping.selection
    assert outcome.replies[3].step
    assert outcome.replies[3].gradient.flatten().tolist() == [1 / 3, 1 / 3]  # every z_i carries 1/n


@pytest.mark.parametrize("mode", ["exact", "finite"])
def test_an_excluded_device_s_plain_gradient_has_no_penalty_in_it(mode):
    model, uploads = server_named("tanh"), uploads_for("tanh")
    shared = {"k_min": 0.5, "k_max": 0.5, "eta": 0.0, "device_gradient": "own"}
    strategy = method("gapsl", model, excluded="plain", penalty=mode, **{**shared, "lambda": 3.0})
    plain = {u.device: strategy.server.first_order(u).activation_gradient.clone() for u in uploads}
    outcome = play(strategy, uploads)
    excluded = set(plain) - set(outcome.selection.kept)
    assert excluded
    for device in excluded:
        assert torch.equal(outcome.replies[device].gradient, plain[device])


def test_exclusion_none_keeps_every_device_beyond_the_cap_too():
    outcome, step = chosen_round("gapsl", degrees(0, 0, 0, 170), exclusion="none", **FIRST_TWO)
    assert outcome.selection.kept == (0, 1, 2, 3)
    assert torch.allclose(step, total(degrees(0, 0, 0, 170), range(4)) / 4, atol=1e-15)


def test_the_leader_is_held_constant_and_made_before_the_penalty():
    """Penalties are added to gradients one device after another; the leader must not see them."""
    model, uploads = server_named("tanh"), uploads_for("tanh")
    settings = {"k_min": 0.75, "k_max": 0.75, "exclusion": "none"}
    plain = play(method("gapsl", model, **settings, **{"lambda": 0.0}), uploads)
    heavy = play(method("gapsl", model, **settings, **{"lambda": 50.0}), uploads)
    for name in ("scores", "dispersion", "ratio", "leader", "lead_angles", "threshold", "kept"):
        assert getattr(plain.selection, name) == getattr(heavy.selection, name)
    assert torch.equal(plain.angles, heavy.angles)


def test_over_the_rounds_the_ratio_follows_the_running_spread():
    strategy = method(
        "gapsl", choose(ROWS)[0], loss=product_loss, total_rounds=4, k_min=0.2, k_max=0.8, **{"lambda": 0.0}
    )
    spreads = []
    for t, rows in enumerate([degrees(0, 0, 0, 90), degrees(0, 0, 0, 30), degrees(0, 0, 0, 60), ROWS], 1):
        selection = play(strategy, choose(rows, round=t)[1], round=t).selection
        spreads.append(selection.dispersion)
        low, high = min(spreads), max(spreads)
        fraction = (high - spreads[-1]) / (high - low) if high > low else 0.0
        assert selection.ratio == pytest.approx(0.2 + t / 4 * fraction * 0.6, rel=1e-12)
        assert len(selection.leader) == max(1, math.ceil(selection.ratio * 4 - 1e-9))
    assert strategy.spread == (min(spreads), max(spreads))


def test_the_record_names_devices_by_id_where_fewer_take_part_than_are_registered():
    outcome, step = chosen_round("gapsl", ROWS, ids=[1, 3, 4, 8], **FIRST_TWO)
    whole, same = chosen_round("gapsl", ROWS, **FIRST_TWO)
    assert torch.equal(step, same)
    named = {0: 1, 1: 3, 2: 4, 3: 8}
    assert outcome.selection.leader == tuple(named[i] for i in whole.selection.leader)
    assert outcome.selection.kept == (1, 3, 4)
    assert sorted(outcome.replies) == [1, 3, 4, 8]
    assert [d for d, reply in outcome.replies.items() if not reply.step] == [8]


def test_k_is_a_share_of_this_round_s_devices_not_of_the_registered():
    settings = {"k_min": 0.5, "k_max": 0.5}
    outcome, _ = chosen_round("gapsl", ROWS, ids=[0, 2, 5, 9], **settings)
    assert len(outcome.selection.leader) == 2


@given(st.integers(0, 1000), st.floats(0.05, 1), st.floats(-1, 2))
@settings(max_examples=25, deadline=None)
def test_every_round_keeps_somebody_and_answers_everybody(seed, k, eta):
    uploads = uploads_for("tanh", seed=seed)
    outcome = play(method("gapsl", server_named("tanh"), k_min=k, k_max=k, eta=eta), uploads)
    kept = list(outcome.selection.kept)
    assert kept
    assert sorted(outcome.replies) == [0, 1, 2, 3]
    assert [d for d in range(4) if outcome.replies[d].step] == kept


# Edges of the domain, through a whole round


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_device_leads_itself_and_its_round_is_psl_s(dtype):
    model, uploads = server_named("tanh", dtype), uploads_for("tanh", devices=1, dtype=dtype)
    gapsl, psl = method("gapsl", model, devices=1, **{"lambda": 10.0}), method("psl", model, devices=1)
    outcome, plain = play(gapsl, uploads), play(psl, uploads)
    assert outcome.selection.leader == outcome.selection.kept == (0,)
    assert torch.equal(weights(gapsl), weights(psl))
    assert torch.equal(outcome.replies[0].gradient, plain.replies[0].gradient)
    assert outcome.selection.penalty == {0: 0.0}


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_two_devices_have_no_dispersion_in_float32_and_the_lower_leads(seed):
    model = server_named("convolution-relu", torch.float32)
    strategy = method("gapsl", model, devices=2, k_min=0.5, k_max=1.0)
    for t in (1, 2):
        uploads = uploads_for("convolution-relu", devices=2, dtype=torch.float32, seed=seed + t, round=t)
        selection = play(strategy, uploads, round=t).selection
        assert selection.scores[0] == selection.scores[1]
        assert selection.dispersion == 0.0
        assert selection.ratio == 0.5
        assert selection.leader == (0,)


def test_a_zero_gradient_never_leads_a_round():
    rows = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    outcome, _ = chosen_round("gapsl", rows, k_min=0.2, k_max=0.2)
    assert outcome.selection.scores[0] == min(outcome.selection.scores.values())
    assert outcome.selection.leader == (1,)


def test_a_round_of_zero_gradients_moves_nothing_and_excludes_nobody():
    outcome, step = chosen_round("gapsl", [[0.0, 0.0]] * 3)
    assert not step.any()
    assert outcome.selection.kept == (0, 1, 2)
    assert outcome.selection.lead_angles == dict.fromkeys(range(3), math.pi / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_a_round_of_identical_gradients_excludes_nobody(count, dtype):
    model = server_named("tanh", dtype)
    first = uploads_for("tanh", devices=1, dtype=dtype)[0]
    uploads = [type(first)(d, 1, 0, first.activations, first.labels) for d in range(count)]
    gapsl, psl = method("gapsl", model, devices=count), method("psl", model, devices=count)
    outcome = play(gapsl, uploads)
    play(psl, uploads)
    assert outcome.selection.kept == tuple(range(count))
    assert torch.equal(weights(gapsl), weights(psl))  # aligned: no penalty either


def test_of_two_opposite_gradients_the_lower_device_leads_and_is_kept_alone():
    outcome, step = chosen_round("gapsl", [[1.0, 2.0], [-1.0, -2.0]], k_min=0.5, k_max=0.5)
    assert outcome.selection.leader == outcome.selection.kept == (0,)
    assert step.tolist() == [1.0, 2.0]


def test_where_nobody_is_within_the_threshold_the_nearest_is_kept():
    rows = degrees(0, 100, 200, 310)
    outcome, step = chosen_round("gapsl", rows, k_min=1.0, k_max=1.0, eta=50.0, **{"lambda": 0.0})
    angles = outcome.selection.lead_angles
    nearest = min(range(4), key=lambda i: angles[i])
    assert outcome.selection.threshold == 0.0 < angles[nearest]
    assert outcome.selection.kept == (nearest,)
    assert torch.allclose(step, total(rows, [nearest]), rtol=1e-15)


def test_the_state_is_the_spread_and_goes_through_json():
    strategy = method("gapsl", server_named("tanh"))
    play(strategy, uploads_for("tanh"))
    fresh = method("gapsl", server_named("tanh"))
    fresh.load_state(json.loads(json.dumps(fresh.state())))
    assert fresh.spread is None
    fresh.load_state(json.loads(json.dumps(strategy.state())))
    assert fresh.spread == strategy.spread
