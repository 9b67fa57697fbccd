"""Robust server steps against naive ones, in float64."""

import statistics

import pytest
import torch
from quick import config_of, prepared
from tiny import BATCH, chosen_round, method, play, server_named, uploads_for, weights

from gapsl.common.errors import InputError
from gapsl.methods import robust
from gapsl.methods.robust import center, clipped

ROWS = torch.randn(7, 23, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()


def naive_median(rows):
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def naive_trimmed(rows, trim):
    out = int(trim * len(rows) + 1e-9)
    columns = [sorted(column)[out : len(rows) - out] for column in zip(*rows, strict=True)]
    return [statistics.fmean(column) for column in columns]


def naive_clipped(rows):
    lengths = [sum(x * x for x in row) ** 0.5 for row in rows]
    longest = statistics.median(lengths)
    return [
        [x * min(1.0, longest / length) if length else x for x in row]
        for row, length in zip(rows, lengths, strict=True)
    ]


def near(found, expected):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", range(1, 8))
def test_estimators_are_the_naive_ones(count, monkeypatch):
    monkeypatch.setattr(robust, "COLUMNS", 5)  # several parts, the last one shorter
    rows = torch.tensor(ROWS[:count], dtype=torch.float64)
    near(center(rows), naive_median(ROWS[:count]))
    near(clipped(rows), naive_clipped(ROWS[:count]))
    for trim in (0.0, 0.2, 0.3, 0.49):
        near(center(rows, trim), naive_trimmed(ROWS[:count], trim))


def test_clipping_leaves_the_shorter_half_as_it_is_and_zeros_alone():
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [30.0, 40.0]])
    assert clipped(rows).tolist() == [[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]]
    assert rows[2].tolist() == [30.0, 40.0], "what was given stays"


def test_clipping_works_where_squares_overflow():
    rows = torch.tensor([[1e30, 1e30], [1.0, 0.0], [0.0, 1.0]])
    assert clipped(rows)[0].tolist() == pytest.approx([0.5**0.5] * 2)


ESTIMATES = {
    "none": lambda rows: torch.tensor(rows, dtype=torch.float64).mean(dim=0),
    "clip": lambda rows: torch.tensor(naive_clipped(rows), dtype=torch.float64).mean(dim=0),
    "median": lambda rows: torch.tensor(naive_median(rows), dtype=torch.float64),
    "trimmed": lambda rows: torch.tensor(naive_trimmed(rows, 0.2), dtype=torch.float64),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ESTIMATES)
@pytest.mark.parametrize("name", ["psl", "papsl", "frozen"])
def test_the_server_steps_on_the_estimate_and_devices_get_what_they_got(name, kind, reduction):
    outcome, step = chosen_round(name, ROWS, robust=kind, reduction=reduction)
    near(step, ESTIMATES[kind](ROWS) * (len(ROWS) if reduction == "sum" else 1))
    plain, _ = chosen_round(name, ROWS, reduction=reduction)
    assert outcome.replies.keys() == plain.replies.keys()
    assert all(torch.equal(r.gradient, plain.replies[d].gradient) for d, r in outcome.replies.items())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["median", "trimmed"])
def test_in_gapsl_the_estimate_is_over_those_that_are_kept(kind, reduction):
    settings = {"reduction": reduction, "lambda": 0.0, "eta": 0.0}
    outcome, step = chosen_round("gapsl", ROWS, robust=kind, **settings)
    kept = outcome.selection.kept
    assert 1 < len(kept) < len(ROWS)
    near(step, ESTIMATES[kind]([ROWS[i] for i in kept]) * (len(kept) if reduction == "sum" else 1))
    plain, _ = chosen_round("gapsl", ROWS, **settings)
    assert outcome.selection == plain.selection


def test_in_gapsl_gradients_are_clipped_before_the_leader_is_found():
    settings = {"lambda": 0.0, "exclusion": "none", "k_min": 1.0, "k_max": 1.0}
    loud = [*ROWS[:-1], [20 * x for x in ROWS[-1]]]
    found, step = chosen_round("gapsl", loud, robust="clip", **settings)
    expected, _ = chosen_round("gapsl", naive_clipped(loud), **settings)
    assert found.selection.lead_angles == pytest.approx(expected.selection.lead_angles)
    near(step, ESTIMATES["clip"](loud))


def test_the_regulariser_is_that_of_the_gradient_before_it_was_clipped():
    """cos does not depend on length: what clipping changes is the gradient's part of the step alone."""
    settings = {"exclusion": "none", "k_min": 1.0, "k_max": 1.0, "robust": "clip"}
    model, uploads = server_named("tanh"), uploads_for("tanh")
    steps = []
    for weight in (0.0, 1.0):
        strategy = method("gapsl", model, **settings, **{"lambda": weight})
        before = weights(strategy)
        play(strategy, uploads)
        steps.append(before - weights(strategy))
    strategy = method("gapsl", model, **settings)
    rows = strategy.server.rows(len(uploads))
    found = [strategy.server.first_order(u, out=row) for u, row in zip(uploads, rows, strict=True)]
    leader = clipped(rows).mean(dim=0)
    each = [strategy.server.penalty(c, leader, "exact")[1][0] for c in found]
    near(steps[1] - steps[0], torch.stack(each).mean(dim=0))


@pytest.mark.parametrize("kind", ["median", "trimmed"])
def test_without_gda_the_estimate_is_over_the_leaders(kind):
    settings = {"k_min": 0.7, "k_max": 0.7}
    outcome, step = chosen_round("gapsl/non-gda", ROWS, robust=kind, **settings)
    near(step, ESTIMATES[kind]([ROWS[i] for i in outcome.selection.leader]))


@pytest.mark.parametrize("hidden", ["mean", "per-device"])
@pytest.mark.parametrize("kind", ["clip", "median", "trimmed"])
def test_epsl_replies_as_ever_and_no_liar_steers_its_step(kind, hidden):
    model, uploads = server_named("tanh"), uploads_for("tanh", devices=5)
    plain, guarded = (method("epsl", model, devices=5, hidden=hidden, robust=r) for r in ("none", kind))
    before = weights(plain)
    one, other = play(plain, uploads), play(guarded, uploads)
    assert all(torch.equal(r.gradient, one.replies[d].gradient) for d, r in other.replies.items())
    assert not torch.equal(weights(plain), weights(guarded))
    assert torch.isfinite(weights(guarded)).all() and not torch.equal(weights(guarded), before)


@pytest.mark.parametrize("kind", ["clip", "median", "trimmed"])
def test_epsl_without_averaged_rows_is_psl(kind):
    model, uploads = server_named("tanh"), uploads_for("tanh", devices=5)
    epsl, psl = (
        method(n, model, devices=5, robust=kind, **s) for n, s in (("epsl", {"phi": 0.0}), ("psl", {}))
    )
    play(epsl, uploads), play(psl, uploads)
    assert torch.equal(weights(epsl), weights(psl))


@pytest.mark.parametrize("kind", ["median", "trimmed"])
def test_epsl_of_equal_devices_is_psl_whatever_the_estimate(kind):
    model, (first, *_) = server_named("tanh"), uploads_for("tanh", devices=1)
    same = [type(first)(d, 1, 0, first.activations, first.labels) for d in range(5)]
    epsl, psl = (method(name, model, devices=5, robust=kind) for name in ("epsl", "psl"))
    play(epsl, same), play(psl, same)
    assert BATCH % 2 == 0
    assert torch.allclose(weights(epsl), weights(psl), rtol=1e-12)


@pytest.mark.parametrize("name", ["sfl", "sfl-v2", "vanilla", "central", "single"])
def test_methods_without_one_step_of_all_devices_refuse_it(name):
    with pytest.raises(InputError, match=rf"robust works with .*not with {name}; set robust = none"):
        prepared(method=name, robust="clip")


def test_estimates_do_not_go_with_devices_that_count_by_their_data():
    for kind in ("median", "trimmed"):
        with pytest.raises(InputError, match="set reduction = mean, or robust = clip"):
            prepared(method="psl", robust=kind, reduction="samples")
    prepared(method="psl", robust="clip", reduction="samples")


def test_at_least_one_value_is_left_by_trimming():
    with pytest.raises(InputError, match="robust_trim"):
        config_of(robust="trimmed", robust_trim=0.5)


def test_one_device_is_compared_with_nobody():
    with pytest.raises(InputError, match="robust = clip compares devices, and there is one"):
        prepared(method="psl", devices=1, robust="clip")
