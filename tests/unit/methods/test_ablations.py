"""The ablations do what SPEC's table says of them, and nothing else differs from GAPSL."""

import math

import pytest
import torch
from tiny import chosen_round, method, play, server_named, uploads_for, weights

ROWS = [[2.0, 0.1], [2.0, -0.1], [2.0, 0.0], [-0.5, 3.0], [1.0, 1.0]]
SELECTION = ("scores", "dispersion", "ratio")
HALF = {"k_min": 0.4, "k_max": 0.4, "eta": 0.0, "lambda": 0.0}


def mean(which):
    return torch.tensor([ROWS[i] for i in which], dtype=torch.float64).mean(dim=0)


def angle(row, target):
    row = torch.tensor(row, dtype=torch.float64)
    return float(torch.acos(row @ target / (row.norm() * target.norm())))


def gapsl_round(**settings):
    return chosen_round("gapsl", ROWS, **{**HALF, **settings})


def test_non_lgi_leads_with_the_mean_of_all():
    outcome, _ = chosen_round("gapsl/non-lgi", ROWS, **HALF)
    assert outcome.selection.leader == (0, 1, 2, 3, 4)
    expected = {i: angle(row, mean(range(5))) for i, row in enumerate(ROWS)}
    assert outcome.selection.lead_angles == pytest.approx(expected, rel=1e-12)
    plain, _ = gapsl_round()
    assert all(getattr(outcome.selection, name) == getattr(plain.selection, name) for name in SELECTION)


def test_rand_lgi_leads_with_a_random_subset_of_the_same_size():
    plain, _ = gapsl_round()
    drawn = set()
    for seed in range(12):
        outcome, _ = chosen_round("gapsl/rand-lgi", ROWS, seed=seed, **HALF)
        leader = outcome.selection.leader
        assert len(leader) == len(plain.selection.leader) == 2
        expected = {i: angle(row, mean(leader)) for i, row in enumerate(ROWS)}
        assert outcome.selection.lead_angles == pytest.approx(expected, rel=1e-9, abs=1e-7)
        drawn.add(tuple(leader))
    assert len(drawn) > 3


def test_rand_lgi_draws_anew_every_round():
    strategy = method("gapsl/rand-lgi", server_named("tanh"), devices=6, k_min=0.5, k_max=0.5)
    leaders = {
        tuple(play(strategy, uploads_for("tanh", devices=6, round=t), round=t).selection.leader)
        for t in range(1, 9)
    }
    assert len(leaders) > 3


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_non_gda_steps_on_the_leader_gradient_alone(reduction):
    outcome, step = chosen_round("gapsl/non-gda", ROWS, reduction=reduction, **HALF)
    assert outcome.selection.leader == gapsl_round()[0].selection.leader == (0, 2)
    assert torch.allclose(step, mean([0, 2]), rtol=1e-14)


def test_non_gda_gives_every_device_its_plain_gradient_and_regularises_nothing():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    outcome = play(method("gapsl/non-gda", model, **{"lambda": 9.0}), uploads)
    plain = play(method("psl", model), uploads)
    for device, reply in plain.replies.items():
        assert torch.equal(outcome.replies[device].gradient, reply.gradient)
        assert outcome.replies[device].step
    assert outcome.selection.kept == (0, 1, 2, 3)
    assert set(outcome.selection.penalty.values()) == {0.0}


def test_rand_gda_keeps_a_random_subset_of_the_kept_set_s_size():
    plain, _ = gapsl_round()
    size, drawn = len(plain.selection.kept), set()
    assert 1 < size < 5
    for seed in range(12):
        outcome, step = chosen_round("gapsl/rand-gda", ROWS, seed=seed, **HALF)
        kept = list(outcome.selection.kept)
        assert len(kept) == size
        assert torch.allclose(step, mean(kept), rtol=1e-14)
        assert [d for d in range(5) if outcome.replies[d].step] == kept  # the rest count as excluded
        assert outcome.selection.leader == plain.selection.leader
        drawn.add(tuple(kept))
    assert len(drawn) > 3


def test_rand_gda_regularises_whom_it_drew():
    model, uploads = server_named("tanh"), uploads_for("tanh")
    with_penalty, without = ({"lambda": weight, "eta": 0.0} for weight in (2.0, 0.0))
    pulled = method("gapsl/rand-gda", model, **with_penalty)
    plain = method("gapsl/rand-gda", model, **without)
    assert play(pulled, uploads).selection.kept == play(plain, uploads).selection.kept
    assert not torch.equal(weights(pulled), weights(plain))


@pytest.mark.parametrize(("ratio", "size"), [(0.1, 1), (0.2, 1), (0.4, 2), (0.5, 3), (1.0, 5)])
def test_a_fixed_ratio_is_the_same_in_every_round(ratio, size):
    strategy = method("gapsl/fixed-ratio", server_named("tanh"), devices=5, total_rounds=4, ratio=ratio)
    for t in (1, 2, 3, 4):
        selection = play(strategy, uploads_for("tanh", devices=5, seed=t, round=t), round=t).selection
        assert selection.ratio == ratio
        assert len(selection.leader) == size


@pytest.mark.parametrize("degrees", [0, 10, 50, 90, 120, 180])
def test_a_fixed_threshold_is_in_degrees_and_knows_no_cap(degrees):
    outcome, _ = chosen_round("gapsl/fixed-threshold", ROWS, threshold=degrees, **HALF)
    assert outcome.selection.threshold == pytest.approx(math.radians(degrees), rel=1e-15)
    angles = outcome.selection.lead_angles
    inside = tuple(i for i, a in angles.items() if a <= math.radians(degrees) + 1e-9)
    nearest = tuple(i for i, a in angles.items() if a <= min(angles.values()) + 1e-9)
    assert outcome.selection.kept == (inside or nearest)


@pytest.mark.parametrize(
    "name", ["gapsl/non-lgi", "gapsl/rand-lgi", "gapsl/rand-gda", "gapsl/fixed-threshold"]
)
def test_exclusion_none_holds_for_the_ablations_too(name):
    outcome, _ = chosen_round(name, ROWS, exclusion="none", **HALF)
    assert outcome.selection.kept == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "name", ["gapsl/non-lgi", "gapsl/rand-lgi", "gapsl/rand-gda", "gapsl/non-gda", "gapsl/fixed-ratio"]
)
def test_the_running_spread_is_carried_by_the_ablations_too(name):
    strategy = method(name, server_named("tanh"))
    seen = []
    for t in (1, 2, 3):
        seen.append(play(strategy, uploads_for("tanh", seed=t, round=t), round=t).selection.dispersion)
    assert strategy.spread == (min(seen), max(seen))
