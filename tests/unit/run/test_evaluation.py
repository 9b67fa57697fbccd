"""Every measure of SPEC's table against a naive loop, and whose model each of them is about."""

import math

import numpy as np
import pytest
import torch
from quick import QUICK, prepared
from torch import nn

import gapsl
from gapsl.device.device import Device
from gapsl.fleets.local import LocalFleet
from gapsl.methods import DeviceInfo
from gapsl.models.part import ModelPart
from gapsl.run.evaluation import evaluate, local_accuracy

CLASSES, SIZES = 3, [10, 30, 60]
INPUTS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(CLASSES, (50,), generator=torch.Generator().manual_seed(1))
PROPORTIONS = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.5, 0.5], [0.2, 0.2, 0.6]], dtype=torch.float64)


class NoBatches:
    """A device in an evaluation draws nothing."""

    drawn, batches_per_pass = 0, 1


def fleet_of(models, kind=LocalFleet):
    devices = {
        i: Device(
            i, ModelPart(m, lambda p: torch.optim.SGD(p, lr=1), lambda t: 1), NoBatches(), seed=0,
            where=torch.device("cpu"),
        )
        for i, m in enumerate(models)
    }  # fmt: skip
    infos = {i: DeviceInfo(size, (size, 0, 0), 1) for i, size in enumerate(SIZES)}
    return kind(devices, infos, {"test": lambda: iter(INPUTS.split(13))})


def parts(seed=2):
    torch.manual_seed(seed)
    clients = [nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5)).double() for _ in SIZES]
    return clients, nn.Sequential(nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, CLASSES)).double()


def probabilities(client, server, sample):
    """A sample's class probabilities, by hand: linear, tanh, linear, softmax; no dropout."""
    first, last = client[0], server[2]
    hidden = np.tanh(first.weight.detach().numpy() @ sample + first.bias.detach().numpy())
    logits = last.weight.detach().numpy() @ hidden + last.bias.detach().numpy()
    return np.exp(logits) / np.exp(logits).sum()


def accuracy(rows):
    hits = [int(np.argmax(row)) == int(label) for row, label in zip(rows, LABELS, strict=True)]
    return sum(hits) / len(hits)


@pytest.fixture
def world():
    clients, server = parts()
    rows = [[probabilities(c, server, x.numpy()) for x in INPUTS] for c in clients]
    found = evaluate(fleet_of(clients), server, "test", LABELS, PROPORTIONS, shared=None)
    return clients, server, rows, found


def test_device_measures_are_each_device_s_part_with_the_server(world):
    _, _, rows, found = world
    each = [accuracy(r) for r in rows]
    assert len(set(each)) > 1
    mean = sum(each) / 3
    assert found.device_accuracy == dict(enumerate(each))
    assert found.over_devices()["device_mean"] == pytest.approx(mean, rel=1e-15)
    assert found.over_devices()["device_std"] == pytest.approx(
        math.sqrt(sum((a - mean) ** 2 for a in each) / 3), rel=1e-12
    )
    assert (found.over_devices()["device_min"], found.over_devices()["device_max"]) == (min(each), max(each))


def test_who_watches_hears_how_many_devices_are_evaluated():
    (clients, server), heard = parts(), []
    evaluate(fleet_of(clients), server, "test", LABELS, PROPORTIONS, shared=None, measured=heard.append)
    assert heard == [0, 1, 2]


def test_the_ensemble_is_the_mean_of_predicted_probabilities(world):
    _, _, rows, found = world
    assert found.ensemble == accuracy([np.mean(votes, axis=0) for votes in zip(*rows, strict=True)])


def test_merged_is_the_average_client_model_weighted_by_amounts_of_data(world):
    clients, server, _, found = world
    merged, _ = parts()
    with torch.no_grad():
        for name, parameter in merged[0].named_parameters():
            parameter.copy_(sum(n / 100 * c.get_parameter(name) for n, c in zip(SIZES, clients, strict=True)))
    assert found.merged == accuracy([probabilities(merged[0], server, x.numpy()) for x in INPUTS])


def test_local_weighs_class_accuracies_by_each_device_s_own_labels(world):
    _, _, rows, found = world
    each = []
    for device, r in enumerate(rows):
        total = 0.0
        for c in range(CLASSES):
            of_class = [row for row, label in zip(r, LABELS, strict=True) if label == c]
            right = sum(int(np.argmax(row)) == c for row in of_class)
            total += float(PROPORTIONS[device, c]) * right / len(of_class)
        each.append(total)
    assert found.local == pytest.approx(sum(each) / 3, rel=1e-14)


def test_confusion_counts_what_every_device_took_each_class_for(world):
    _, _, rows, found = world
    counts = np.zeros((CLASSES, CLASSES), dtype=int)
    for r in rows:
        for row, label in zip(r, LABELS, strict=True):
            counts[label, np.argmax(row)] += 1
    assert found.confusion == tuple(map(tuple, counts.tolist()))
    assert found.class_accuracy == pytest.approx(np.diag(counts) / counts.sum(axis=1))


def test_a_result_has_the_confusion_of_the_last_round_alone_and_the_names_of_the_classes():
    result = gapsl.train(method="psl", **{**QUICK, "rounds": 2, "evaluate_every": 1})
    assert sum(map(sum, result.final.confusion)) == 3 * QUICK["test_samples"]
    assert all(not entry.confusion for entry in result.history)
    assert result.classes == tuple("0123456789")
    assert gapsl.RunResult.from_dict(result.to_dict()) == result


def test_the_loss_is_the_mean_over_devices_of_the_mean_log_likelihood(world):
    _, _, rows, found = world
    each = [-np.mean([math.log(row[label]) for row, label in zip(r, LABELS, strict=True)]) for r in rows]
    assert found.test_loss == pytest.approx(np.mean(each), rel=1e-12)


def test_evaluating_changes_no_model_and_leaves_the_server_training(world):
    clients, server, _, _ = world
    fresh, untouched = parts()
    assert server.training
    for model, then in zip([*clients, server], [*fresh, untouched], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), then.parameters(), strict=True))


def test_merged_is_null_where_nobody_may_see_the_models():
    class Private(LocalFleet):
        merges = False

    clients, server = parts()
    found = evaluate(fleet_of(clients, Private), server, "test", LABELS, PROPORTIONS, shared=None)
    assert found.merged is None
    assert found.ensemble is not None


def test_one_device_s_model_shared_by_all_makes_the_measures_coincide():
    clients, server = parts()
    found = evaluate(fleet_of(clients), server, "test", LABELS, PROPORTIONS, shared=1)
    own = accuracy([probabilities(clients[1], server, x.numpy()) for x in INPUTS])
    assert found.ensemble == found.merged == own
    assert found.over_devices()["device_mean"] == pytest.approx(
        own, rel=1e-15
    )  # a mean of equal numbers rounds
    assert found.over_devices()["device_std"] == pytest.approx(0, abs=1e-15)


def test_a_shared_mean_is_what_merged_would_be():
    clients, server = parts()
    shares = dict(enumerate(map(float, SIZES)))
    found = evaluate(fleet_of(clients), server, "test", LABELS, PROPORTIONS, shared=shares)
    alone = evaluate(fleet_of(clients), server, "test", LABELS, PROPORTIONS, shared=None)
    assert found.ensemble == found.merged == alone.merged
    assert found.over_devices()["device_mean"] == pytest.approx(alone.merged, rel=1e-15)


def test_local_leaves_out_classes_that_the_test_set_does_not_have():
    by_class = torch.tensor([[0.5, math.nan, 1.0], [1.0, math.nan, 0.0]], dtype=torch.float64)
    proportions = torch.tensor([[0.25, 0.5, 0.25], [0.0, 1.0, 0.0]])
    assert local_accuracy(by_class, proportions) == 0.75  # (0.5 + 1.0) / 2; the second device has no class


@pytest.mark.parametrize("method", ["sfl", "sfl-v2", "vanilla", "central"])
def test_methods_with_one_client_model_report_one_accuracy(method):
    final = gapsl.train(**{**QUICK, "method": method}).final
    assert final.ensemble == final.merged == pytest.approx(final.device_mean, rel=1e-15)
    assert len(final.device_accuracy) == 3


def test_every_device_s_proportions_are_those_of_its_own_labels():
    training = prepared(partition="dirichlet:0.3")
    for device, info in training.fleet.devices.items():
        counts = torch.tensor(info.label_counts).double()
        assert torch.allclose(training.plan.proportions[device], counts / counts.sum())
        assert int(counts.sum()) == info.samples


def test_with_a_validation_split_the_test_set_is_reported_once_at_the_end():
    result = gapsl.train(**{**QUICK, "validation": 0.1, "evaluate_every": 2})
    assert [entry.split for entry in result.history] == ["validation", "validation"]
    assert result.final.split == "test"
    assert result.final.validation == result.history[-1]


def test_evaluating_more_often_changes_no_weight():
    for method in ("gapsl", "sfl"):
        words = {**QUICK, "method": method, "model": "small", "norm": "batch", "dropout": 0.2}
        often, seldom = (gapsl.train(**{**words, "evaluate_every": n}) for n in (1, 4))
        assert often.final.weights_sha256 == seldom.final.weights_sha256
        assert often.final.device_mean == seldom.final.device_mean
