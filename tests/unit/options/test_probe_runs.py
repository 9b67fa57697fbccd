"""Runs whose devices share probes: the same traffic, and client-side models that stay together."""

from dataclasses import replace

import pytest
import torch
from quick import device_states, prepared, same_state, server_state, trained
from torch.func import functional_call, jacrev

import gapsl
from gapsl.common.errors import InputError
from gapsl.data import load_source
from gapsl.data.probes import Probes, dead_leaves
from gapsl.device.exchange import Exchange, Reply, Upload
from gapsl.methods.base import RunInfo
from gapsl.options.probes import agreed
from gapsl.run.folder import RunFolder

SKEWED = {
    "partition": "dirichlet:0.1", "devices": 4, "batch_size": 8, "rounds": 40, "model": "small", "width": 0.5,
    "device_optimizer": {"lr": 0.01}, "server_optimizer": {"lr": 0.05}, "device_gradient": "own",
}  # fmt: skip
TIED = {"probes": 3, "probe_pull": 0.1}
MET = {"probes": 3, "probe_steps": 4}
AGREED = {**MET, "probe_gradients": True}
BOTH = pytest.mark.parametrize("held", [TIED, MET], ids=["pulled", "met"])


def jacobian(part, inputs):
    """Return the matrix of the derivatives of all outputs by all weights."""
    names = [name for name, _ in part.model.named_parameters()]

    def outputs(weights):
        pieces = dict(zip(names, part.views(weights), strict=True))
        return functional_call(part.model, pieces, (inputs,)).flatten()

    return jacrev(outputs)(part.flat())


def uploads(training, round=1):
    exchange = next(training.strategy.exchanges(round, training.present(round)))
    return list(training.fleet.collect(round, exchange))


def test_every_upload_brings_the_same_pictures_as_the_last_rows_of_what_is_sent():
    training = prepared(method="psl", **SKEWED, **TIED)
    sent = uploads(training)
    for upload in sent:
        assert len(upload.activations) == len(upload.labels) == 5
        assert (upload.labels >= 0).all()
        rows, labels = upload.pack()
        assert len(rows) == upload.rows == 8
        assert labels[-3:].tolist() == [-1, -1, -1]
        assert rows.nbytes + labels.nbytes == upload.nbytes
        assert torch.equal(rows[-3:], upload.probes)
        again = Upload.unpack(upload.device, 1, 0, rows, labels, 3)
        assert torch.equal(again.activations, upload.activations) and torch.equal(again.labels, upload.labels)
        assert torch.equal(again.probes, upload.probes)
    for upload in sent[1:]:  # the models are the same at the start, so their activations are, too
        assert torch.equal(upload.probes, sent[0].probes)
        assert not torch.equal(upload.activations, sent[0].activations)


def test_a_reply_is_sent_as_one_tensor():
    reply = Reply(torch.ones(5, 2), False, torch.zeros(3, 2))
    rows = reply.pack()
    assert rows.shape == (8, 2) and rows.nbytes == reply.nbytes
    again = Reply.unpack(rows, False, 3)
    assert (
        not again.step and torch.equal(again.gradient, reply.gradient) and torch.equal(again.pull, reply.pull)
    )
    alone = Reply.unpack(rows, True)
    assert alone.pull is None and alone.pack() is rows


def test_probes_change_from_round_to_round_and_with_the_seed():
    source = load_source("digits")
    first, other = Probes(source, seed=0, per_batch=3), Probes(source, seed=1, per_batch=3)
    assert torch.equal(first.of_round(5), Probes(source, seed=0, per_batch=3).of_round(5))
    assert not torch.equal(first.of_round(5), first.of_round(6))
    assert not torch.equal(first.of_round(5), other.of_round(5))
    assert first.of_round(5).shape == (3, *source.input_shape)
    assert first.of_round(10_000).shape == (3, *source.input_shape), "they go round"


def test_pictures_are_varied_and_within_range():
    pictures = dead_leaves(20, 3, 12, 16, torch.Generator().manual_seed(0))
    assert pictures.shape == (20, 3, 12, 16)
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    assert pictures.flatten(1).std(dim=1).min() > 0.05


@BOTH
def test_traffic_is_that_of_psl(held):
    plain, tied = trained(method="psl", **SKEWED), trained(method="psl", **SKEWED, **held)
    assert tied.fleet.traffic.sent == plain.fleet.traffic.sent
    assert tied.fleet.traffic.received == plain.fleet.traffic.received


@pytest.mark.parametrize(
    "optimizer",
    [{"lr": 0.01}, pytest.param({"name": "adamw", "lr": 0.001}, marks=pytest.mark.slow)],
    ids=str,
)
def test_parts_stay_together_under_label_skew(optimizer):
    settings = {**SKEWED, "device_optimizer": optimizer}

    def spread(training):
        parts = [training.fleet._devices[d].part.flat() for d in range(4)]
        mean = torch.stack(parts).mean(dim=0)
        return max(float((part - mean).norm()) for part in parts)

    loose, tied, met = (trained(method="psl", **settings, **held) for held in ({}, TIED, MET))
    assert spread(tied) < 0.7 * spread(loose)
    assert spread(met) < 0.4 * spread(loose)
    assert spread(met) < 0.7 * spread(tied)


def test_devices_that_agree_on_gradients_keep_one_client_side_model():
    training = trained(method="psl", **SKEWED, **AGREED)
    digests = set(training.fleet.digests().values())
    assert len(digests) == 1
    assert all(device.drift() > 0.05 for device in training.fleet._devices.values())


def test_to_agree_on_gradients_sends_the_probes_once_more():
    met, agreed = trained(method="psl", **SKEWED, **MET), trained(method="psl", **SKEWED, **AGREED)
    (probed,) = {upload.probes.nbytes for upload in uploads(prepared(method="psl", **SKEWED, **MET))}
    for device in range(4):
        more = agreed.fleet.traffic.received[device] - met.fleet.traffic.received[device]
        assert more == SKEWED["rounds"] * probed
        labels = SKEWED["rounds"] * 3 * 8
        assert agreed.fleet.traffic.sent[device] - met.fleet.traffic.sent[device] == more + labels


def test_all_take_the_step_that_does_to_the_probes_what_theirs_do_on_average():
    """With as many steps of solving as it takes, the step is the projection of the mean gradient."""
    settings = {**SKEWED, "rounds": 1, "model": "mlp", "width": 0.05, "precision": "float64"}
    plain = {**settings, "device_optimizer": {"lr": 1.0, "momentum": 0.0}}
    own = trained(method="psl", **plain, probes=3, probe_pull=0)
    agreed = trained(method="psl", **plain, **{**AGREED, "probe_steps": 200})
    starts = prepared(method="psl", **plain, **AGREED).fleet._devices[0]
    start, probes = starts.part.flat(), starts.placed(starts.probes.of_round(1))
    steps = torch.stack([own.fleet._devices[d].part.flat() - start for d in range(4)])
    matrix = jacobian(starts.part, probes)
    expected = torch.linalg.pinv(matrix) @ (matrix @ steps.mean(dim=0))
    found = agreed.fleet._devices[0].part.flat() - start
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6 * float(expected.norm()))
    for device, step in enumerate(steps):
        kept = agreed.fleet._devices[device].tensors()["kept"]
        uncarried = torch.linalg.pinv(matrix) @ (matrix @ step) - step
        assert torch.allclose(kept, uncarried, rtol=1e-3, atol=1e-5 * float(step.norm()))


def test_who_missed_the_exchange_of_batches_takes_the_common_step_and_proposes_nothing():
    training = prepared(method="psl", **SKEWED, **AGREED)
    exchange = Exchange((0, 1, 2, 3), 1, proposes=True)
    found = list(training.fleet.collect(1, exchange))
    assert not any(upload.probes.any() for upload in found)
    outcome = training.strategy.step(1, exchange, found)
    assert not any(reply.step for reply in outcome.replies.values())
    before = training.fleet.digests()
    training.fleet.deliver(1, outcome.replies)
    assert training.fleet.digests() == before, "where nobody has a gradient, nobody steps"
    training.one_round(1)
    assert len(set(training.fleet.digests().values())) == 1


def test_a_proposal_does_not_count_of_who_is_left_out_is_not_finite_or_shouts():
    def upload(device, value):
        return Upload(
            device, 1, 1, torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), torch.full((3, 2), value)
        )

    def mean(*values, left_out=(), robust="none"):
        run = RunInfo(0, 1, 1, len(values), {}, robust=robust)
        replies = agreed([upload(d, value) for d, value in enumerate(values)], left_out, run).replies
        assert sorted(replies) == list(range(len(values))), "everybody takes the step"
        assert len({reply.pull.numpy().tobytes() for reply in replies.values()}) == 1
        return float(replies[0].pull[0, 0]), replies[0].step

    assert mean(1.0, 2.0, 3.0) == (2.0, True)
    assert mean(1.0, 2.0, 3.0, left_out=(2,)) == (1.5, True)
    assert mean(1.0, 2.0, float("nan")) == (1.5, True)
    assert mean(1.0, 0.0, 3.0) == (2.0, True), "zeros are of who has no gradient"
    assert mean(1.0, 1.0, 8.0) == (pytest.approx(10 / 3), True)
    assert mean(1.0, 1.0, 13.0) == (pytest.approx(4.0), True), "ten times what is usual, at most"
    assert mean(1.0, 1e9) == (pytest.approx(5.5), True)
    assert mean(*[1e-3] * 6, *[1.0] * 4) == (pytest.approx(0.4006), True), "most may have learned all"
    assert mean(1.0, 1.0, 8.0, robust="clip") == (pytest.approx(1.0), True)
    assert mean(1.0, 2.0, 8.0, robust="median") == (2.0, True)
    assert mean(0.0, 0.0) == (0.0, False)


def test_where_parts_agree_there_is_nothing_to_meet_for(tmp_path):
    first = {**SKEWED, "rounds": 1}  # all begin with the same client-side model
    met = device_states(trained(method="psl", **first, **MET), tmp_path / "met")
    apart = device_states(trained(method="psl", **first, probes=3, probe_pull=0), tmp_path / "apart")
    for one, other in zip(met, apart, strict=True):
        same_state(one, other)


@pytest.mark.parametrize("method", ["gapsl", "epsl", "sfl", "sfl-v2"])
def test_probes_change_the_parts_of_every_method_with_devices_side_by_side(method, tmp_path):
    few = {**SKEWED, "rounds": 3}
    loose, tied, met = (
        device_states(trained(method=method, **few, **held), tmp_path / str(number))
        for number, held in enumerate(({"probes": 3, "probe_pull": 0}, TIED, MET))
    )
    assert any(not torch.equal(tied[0][name], loose[0][name]) for name in tied[0])
    assert any(not torch.equal(met[0][name], loose[0][name]) for name in met[0])


@pytest.mark.parametrize("method", ["vanilla", "central", "single"])
def test_probes_are_refused_where_one_device_trains_at_a_time(method):
    with pytest.raises(InputError, match="probes = 0"):
        prepared(method=method, **SKEWED, **TIED)


def test_probes_are_refused_where_they_would_be_in_batch_statistics():
    with pytest.raises(InputError, match="norm = group"):
        prepared(method="psl", **SKEWED, **TIED, norm="batch")


@BOTH
def test_a_part_that_is_not_finite_on_the_probes_spoils_no_other(held, tmp_path):
    training = prepared(method="psl", **SKEWED, **held)
    healthy = training.fleet._devices[2].forward

    def sick(round, turn=0, *, learn=True):
        upload = healthy(round, turn, learn=learn)
        probes = upload.probes.clone()
        probes[-1] = float("inf")
        return replace(upload, probes=probes)

    training.fleet._devices[2].forward = sick
    before = device_states(training, tmp_path / "before")
    training.one_round(1)
    after = device_states(training, tmp_path / "after")
    assert all(torch.isfinite(value).all() for state in after for value in state.values())
    assert training.state.health.failing == {2: 1}
    for device in range(4):
        names = before[device].keys() - {"drawn"}
        moved = any(not torch.equal(before[device][name], after[device][name]) for name in names)
        assert moved == (device != 2)


def test_records_tell_how_far_apart_the_parts_are(tmp_path):
    out = tmp_path / "run"
    gapsl.train(dataset="digits", method="psl", out=out, **{**SKEWED, "rounds": 5}, **TIED)
    records = list(RunFolder.open(out).records())
    found = [record.probes.apart for record in records]
    assert found[0] == 0
    assert found[-1] > 0
    assert list(records[-1].probes.scores) == [0, 1, 2, 3]
    assert min(records[-1].probes.scores.values()) > 0


@pytest.mark.parametrize("held", [TIED, MET, AGREED], ids=["pulled", "met", "agreed"])
def test_a_tied_run_resumes_to_the_bit(held, tmp_path):
    settings = {**SKEWED, **held, "dataset": "digits", "method": "gapsl", "rounds": 6, "checkpoint_every": 2}
    whole = gapsl.train(out=tmp_path / "whole", **settings)
    calls = iter(range(1, 100))
    gapsl.train(out=tmp_path / "cut", stop=lambda: next(calls) >= 3, **settings)
    assert gapsl.resume(tmp_path / "cut").final.weights_sha256 == whole.final.weights_sha256


def test_weight_zero_ties_nothing_and_only_takes_rows():
    same_state(
        server_state(trained(method="psl", **SKEWED, probes=3, probe_pull=0)),
        server_state(trained(method="psl", **{**SKEWED, "batch_size": 5})),
    )


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="leave room"):
        prepared(probes=4)
    for lacking in ({}, {"probes": 2}, {"probe_steps": 3}):
        with pytest.raises(InputError, match="probes = 2 and probe_steps = 8"):
            prepared(batch_size=8, probe_gradients=True, **lacking)
    flat = torch.utils.data.TensorDataset(torch.randn(20, 5), torch.arange(20) % 2)
    with pytest.raises(InputError, match="pictures"):
        gapsl.train(
            model="mlp", dataset=(flat, flat), devices=2, partition="iid", batch_size=4, probes=2,
            rounds=1,
        )  # fmt: skip


def test_devices_may_descend_another_loss_than_the_server():
    """The server's gradient is the plain loss's, the devices' the calibrated one's."""
    settings = {**SKEWED, "method": "psl"}
    apart, plain, both = (
        prepared(**settings, calibration="prior", calibration_for="devices"),
        prepared(**settings),
        prepared(**settings, calibration="prior"),
    )
    exchanges = [next(t.strategy.exchanges(1, t.present(1))) for t in (apart, plain, both)]
    outcomes = [
        t.strategy.step(1, exchange, t.fleet.collect(1, exchange))
        for t, exchange in zip((apart, plain, both), exchanges, strict=True)
    ]
    same_state(server_state(apart), server_state(plain))
    for device in range(4):
        theirs = [outcome.replies[device].gradient for outcome in outcomes]
        assert torch.allclose(theirs[0], theirs[2])
        assert not torch.allclose(theirs[0], theirs[1])


def test_finite_and_exact_regularisers_agree_where_devices_have_a_loss_of_their_own():
    settings = {
        **SKEWED, "method": "gapsl", "calibration": "prior", "calibration_for": "devices", "rounds": 2,
        "precision": "float64", "model": "mlp", "width": 1.0,
    }  # fmt: skip
    found = []
    for penalty in ("exact", "finite"):
        training = prepared(**settings, gapsl={"penalty": penalty, "lambda": 0.5, "exclusion": "none"})
        exchange = next(training.strategy.exchanges(1, training.present(1)))
        found.append(training.strategy.step(1, exchange, training.fleet.collect(1, exchange)))
    for device in range(4):
        exact, finite = (outcome.replies[device].gradient for outcome in found)
        assert torch.allclose(exact, finite, rtol=1e-3, atol=1e-7)


def test_balance_needs_devices_that_count_alike():
    with pytest.raises(InputError, match="reduction = mean"):
        gapsl.train(dataset="digits", balance="classes", reduction="samples", rounds=1)


def test_balance_needs_the_cross_entropy():
    def own(logits, labels, device):
        return logits.mean()

    with pytest.raises(InputError, match="balance = none"):
        gapsl.train(dataset="digits", balance="classes", loss=own, rounds=1)
    trained(method="psl", balance="classes", **{**SKEWED, "rounds": 2})
