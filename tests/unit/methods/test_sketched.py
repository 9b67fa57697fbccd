"""Sketches in place of gradients: the same choice where they say enough, and the same round to rounding."""

import pytest
import torch
from tiny import flat, method, play, same_outcome, server_named, uploads_for

import gapsl
from gapsl.alignment import align, identify_leader
from gapsl.alignment.sketch import BUCKETS, CountSketch
from gapsl.methods import METHODS
from gapsl.methods.gapsl import Gapsl
from gapsl.methods.sketched import SketchedServerModel

SKETCHING = [name for name, one in METHODS.items() if one.sketches and one.__module__.startswith("gapsl.")]


def sketched(name, model, *, reduction="mean", **words):
    """The method over sketches, which have room for all of these small gradients."""
    found = method(name, model, reduction=reduction, **words)
    samples = {device: float(info.samples) for device, info in found.run.devices.items()}
    weights = samples if reduction == "samples" else dict.fromkeys(samples, 1.0)
    part, averages = found.server.part, reduction != "sum"
    found.server = SketchedServerModel(part, seed=found.server.seed, weights=weights, averages=averages)
    return found


def test_methods_that_need_angles_and_sums_alone_take_sketches():
    assert {"psl", "papsl", "frozen", "gapsl", "gapsl/non-lgi", "gapsl/non-gda"} <= set(SKETCHING)
    assert not {"epsl", "sfl", "sfl-v2", "vanilla", "central", "single"} & set(SKETCHING)


@pytest.mark.parametrize("reduction", ["mean", "samples", "sum"])
@pytest.mark.parametrize("name", SKETCHING)
def test_a_round_is_the_exact_one_where_sketches_tell_all(name, reduction):
    words = {"weight": 0.3} if name.startswith("gapsl") else {}
    strategies = [
        make(name, server_named("dropout"), reduction=reduction, **words) for make in (method, sketched)
    ]
    for round in (1, 2):
        uploads = uploads_for("dropout", round=round, seed=round)
        exact, found = (play(strategy, uploads, round=round) for strategy in strategies)
        assert found.losses == pytest.approx(exact.losses, rel=1e-12)
        for device, reply in exact.replies.items():
            assert torch.allclose(found.replies[device].gradient, reply.gradient, atol=1e-12)
        if exact.selection is not None:
            assert (found.selection.leader, found.selection.kept) == (
                exact.selection.leader,
                exact.selection.kept,
            )
        assert torch.allclose(found.angles, exact.angles)
        one, other = (flat(strategy.server.part.model) for strategy in strategies)
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("penalty", ["exact", "finite", "none"])
def test_the_regulariser_is_that_of_the_whole_gradients(penalty):
    words = {"weight": 0.5, "penalty": penalty, "exclusion": "none", "k_min": 0.5}
    strategies = [make("gapsl", server_named("tanh"), **words) for make in (method, sketched)]
    for strategy in strategies:
        play(strategy, uploads_for("tanh"))
    one, other = (flat(strategy.server.part.model) for strategy in strategies)
    assert torch.allclose(one, other, atol=1e-6 if penalty == "finite" else 1e-12)


@pytest.mark.parametrize("name", ["psl", "gapsl"])
def test_uploads_in_any_order_give_the_same_bits(name):
    uploads = uploads_for("tanh", devices=7, dtype=torch.float32)
    ordered, reversed_ = (sketched(name, server_named("tanh", torch.float32), devices=7) for _ in range(2))
    same_outcome(play(ordered, uploads), play(reversed_, uploads[::-1]))
    assert torch.equal(flat(ordered.server.part.model), flat(reversed_.server.part.model))


@pytest.mark.parametrize("name", ["psl", "gapsl"])
def test_an_outlier_is_not_in_the_sum(name):
    uploads = uploads_for("tanh", devices=5)
    uploads[2].activations.fill_(float("nan"))
    strategies = [make(name, server_named("tanh"), devices=5) for make in (method, sketched)]
    outcomes = [play(strategy, uploads) for strategy in strategies]
    assert list(outcomes[1].skipped) == [2]
    one, other = (flat(strategy.server.part.model) for strategy in strategies)
    assert torch.allclose(one, other, atol=1e-12) and torch.isfinite(other).all()


def test_a_round_in_which_all_count_alike_takes_no_further_pass(monkeypatch):
    strategy, passes = sketched("psl", server_named("tanh")), []
    logits = strategy.server.logits

    def counted(upload):
        passes.append(upload.device)
        return logits(upload)

    monkeypatch.setattr(strategy.server, "logits", counted)
    play(strategy, uploads_for("tanh"))
    assert passes == [0, 1, 2, 3]


def test_what_is_kept_of_a_round_does_not_grow_with_the_model(monkeypatch):
    monkeypatch.setattr("gapsl.methods.sketched.BUCKETS", 8)
    strategy = sketched("gapsl", server_named("tanh"))
    play(strategy, uploads_for("tanh"))
    assert strategy.server.rows(4).shape == (4, 8)


def test_on_the_gradients_of_a_run_sketches_choose_nearly_the_same_devices(monkeypatch):
    recorded, combine = [], Gapsl.combine

    def noted(self, round, contributions, gradients):
        recorded.append(gradients.clone())
        return combine(self, round, contributions, gradients)

    monkeypatch.setattr(Gapsl, "combine", noted)
    words = {"dataset": "digits", "model": "small", "width": 4, "partition": "dirichlet:0.5", "seed": 0}
    gapsl.train(method="gapsl", devices=10, rounds=10, batch_size=16, evaluate_every=100, **words)
    size = recorded[0].shape[1]
    assert size > 4 * BUCKETS
    sketch = CountSketch(size, torch.Generator().manual_seed(0), recorded[0])
    off, common = [], []
    for rows in recorded:
        kept = []
        for seen in (rows, torch.stack([sketch(row) for row in rows])):
            leader = identify_leader(seen, round=1, total_rounds=1, k_min=0.2, k_max=0.8)
            off.append(leader.angles.cos())
            kept.append(set(align(seen, leader.gradient, eta=0.5).kept))
        common.append(len(kept[0] & kept[1]) / len(kept[0] | kept[1]))
    exact, sketched_ = torch.stack(off[::2]), torch.stack(off[1::2])
    assert float((exact - sketched_).abs().quantile(0.99)) < 0.012
    assert sum(common) / len(common) > 0.9
