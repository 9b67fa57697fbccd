"""Losses that are no numbers: warned of, recorded, lived with for a while, and then training stops."""

import math

import pytest
from quick import QUICK

import gapsl
from gapsl.common.errors import TrainingStopped
from gapsl.methods.server_model import cross_entropy
from gapsl.run.metrics import Metrics

BAD = 1


class Listener(gapsl.Observer):
    def __init__(self):
        self.warnings, self.records = [], []

    def warned(self, message):
        self.warnings.append(message)

    def round(self, record):
        self.records.append(record)


def failing(rounds, devices=(BAD,)):
    """A loss that is NaN for these devices in these rounds, for methods with one pass a device and round."""
    calls = {}

    def loss(logits, labels, device):
        calls[device] = calls.get(device, 0) + logits.requires_grad  # a trial before training is no round
        plain = cross_entropy(logits, labels, device)
        return plain * math.nan if device in devices and calls[device] in rounds else plain

    return loss


def run(method="psl", rounds=4, listener=None, **settings):
    words = {**QUICK, "method": method, "rounds": rounds, "angles": "off", **settings}
    return gapsl.train(observers=[listener] if listener else [], **words)


@pytest.mark.parametrize("method", ["psl", "epsl", "frozen", "sfl", "sfl-v2", "gapsl/non-gda"])
def test_a_device_is_skipped_for_its_round_with_a_record_and_a_warning(method):
    listener = Listener()
    result = run(method, listener=listener, loss=failing({2}))
    assert [record.skipped for record in listener.records] == [(), (BAD,), (), ()]
    assert [sorted(record.losses) for record in listener.records][1] == [0, 2]
    assert len(listener.warnings) == 1
    assert "round 2" in listener.warnings[0]
    assert f"device {BAD}" in listener.warnings[0]
    assert listener.records[1].reasons == {BAD: "its loss or gradient is not finite"}
    assert math.isfinite(result.final.test_loss)


def test_where_no_device_is_finite_training_stops_and_says_where():
    with pytest.raises(
        TrainingStopped, match=r"round 3: all .*device 0: .*device 2: .*last checkpoint: none"
    ) as stop:
        run(loss=failing({3}, devices=(0, 1, 2)))
    assert stop.value.exit_code == 3


def test_one_device_ends_no_run_however_long_it_fails():
    listener = Listener()
    assert run(rounds=30, listener=listener, loss=failing(range(1, 99))) is not None
    assert all(record.skipped == (BAD,) for record in listener.records)
    told = ["round 1: device 1 skipped: ", "round 10: device 1 skipped for the 10th round running: "]
    assert [
        message.removesuffix("its loss or gradient is not finite") for message in listener.warnings
    ] == told


def test_ten_rounds_running_with_most_devices_bad_stop_training(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(TrainingStopped) as stop:
        run(rounds=30, loss=failing(range(3, 99), devices=(0, BAD)), out=out, checkpoint_every=5)
    message = str(stop.value)
    assert "round 12" in message  # rounds 3 to 12 are ten
    assert "device 0: its loss" in message and "device 1: its loss" in message and "device 2" not in message
    assert f"last checkpoint: {out / 'checkpoints' / 'round-000010'}" in message


def test_half_of_the_devices_are_not_most_of_them():
    assert run(rounds=14, devices=4, loss=failing(range(1, 99), devices=(0, BAD))) is not None


def test_nine_bad_rounds_running_and_a_good_one_are_forgiven():
    bad = {*range(1, 10), *range(11, 20)}
    listener = Listener()
    assert run(rounds=20, listener=listener, loss=failing(bad, devices=(0, BAD))) is not None
    assert [message.split(":")[0] for message in listener.warnings] == ["round 1"] * 2 + ["round 11"] * 2


def test_a_restart_does_not_forget_the_bad_rounds(tmp_path):
    out = tmp_path / "run"
    calls = iter(range(1, 99))
    always = failing(range(1, 99), devices=(0, BAD))
    assert run(rounds=30, loss=always, out=out, stop=lambda: next(calls) >= 6) is None
    with pytest.raises(TrainingStopped, match="round 10"):
        gapsl.resume(out, loss=always)


def test_the_one_device_of_a_round_is_not_the_fleet():
    """Each round has one device of three, and one of them fails always."""
    listener = Listener()
    assert run(rounds=12, participation=0.3, loss=failing(range(1, 99)), listener=listener) is not None
    assert (BAD,) in [record.skipped for record in listener.records]


def test_two_devices_that_fail_by_turns_are_lived_with():
    calls = {}

    def loss(logits, labels, device):
        calls[device] = calls.get(device, 0) + logits.requires_grad  # a trial before training is no round
        plain = cross_entropy(logits, labels, device)
        return plain * math.nan if device == calls[device] % 2 else plain

    assert run(rounds=14, loss=loss) is not None


@pytest.mark.parametrize("method", ["vanilla", "central"])
def test_one_bad_batch_among_a_round_s_good_ones_stops_nobody(method):
    """The one device of such a round made several batches, and only one of them was bad."""
    calls = iter(range(1, 999))

    def loss(logits, labels, device):
        bad = logits.requires_grad and next(calls) == 2
        return cross_entropy(logits, labels, device) * (math.nan if bad else 1.0)

    listener = Listener()
    assert run(method, loss=loss, listener=listener) is not None
    assert listener.records[0].skipped == (0,)
    assert len(listener.warnings) == 1


@pytest.mark.parametrize("method", ["gapsl", "epsl", "sfl", "sfl-v2"])
def test_a_record_s_angles_are_between_the_devices_it_has_losses_of(method):
    listener = Listener()
    run(method, rounds=3, loss=failing(range(1, 99)), listener=listener, angles="all")
    for record in listener.records:
        assert sorted(record.losses) == [0, 2]
        assert record.angles.devices == (0, 2) and [len(row) for row in record.angles.above] == [1, 0]


def test_records_are_strict_json_whatever_the_numbers(tmp_path):
    out = tmp_path / "run"
    run("gapsl", loss=failing({2}), out=out)
    assert "NaN" not in (out / "records.jsonl").read_text()


@pytest.mark.parametrize("robust", ["none", "trimmed"])
def test_a_run_with_outliers_is_resumed_to_the_same_weights(robust, tmp_path):
    """One device's loss is far off in rounds 3 and 6, and lengths before the restart count after it."""

    def far_off(calls):
        def loss(logits, labels, device):
            calls[device] = calls.get(device, 0) + logits.requires_grad
            plain = cross_entropy(logits, labels, device)
            return plain * 1e6 if device == BAD and calls[device] in (3, 6) else plain

        return loss

    listener, calls, words = Listener(), {}, {"rounds": 8, "devices": 5, "robust": robust}
    whole = run(loss=far_off({}), listener=listener, **words)
    assert [record.round for record in listener.records if record.skipped] == [3, 6]
    assert "is usual" in listener.records[2].reasons[BAD]
    rounds = iter(range(1, 99))
    out = tmp_path / "run"
    assert run(loss=far_off(calls), out=out, stop=lambda: next(rounds) >= 4, **words) is None
    resumed = gapsl.resume(out, loss=far_off(dict.fromkeys(calls, 4)))
    assert resumed.final.weights_sha256 == whole.final.weights_sha256


def test_metrics_count_the_rounds_in_which_a_device_was_skipped():
    metrics = Metrics(["a", "b", "c"], lambda: (), dict)
    listener = Listener()
    gapsl.train(observers=[listener, metrics], **QUICK, method="psl", loss=failing({2, 3}))
    found = {
        name: metrics.registry.get_sample_value("gapsl_skipped_total", {"device": name}) for name in "abc"
    }
    assert found == {"a": 0.0, "b": 2.0, "c": 0.0}
