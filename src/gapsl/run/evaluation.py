"""Accuracy, and whose: every measure from one pass of the test set per client-side model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.fleets.base import (
    Away,
    Beside,
    Fleet,
    LabelPrivate,
    OwnTests,
    Split,
    Unmeasured,
    Whose,
    evaluating,
    probabilities,
)
from gapsl.run.records import finite_or_none

NOBODY = "no device was there to be evaluated"
NO_TESTS = "neither the devices nor the server have test samples; give some to one of them"
WINDOW = 3  # evaluations an accuracy is smoothed over
MARGIN = 0.01  # within one point of the best counts as there
ROUNDING = 1e-9  # one point below is within one point


@dataclass(frozen=True)
class Measures:
    """What an evaluation measures; see `Evaluation` for what each means."""

    device_accuracy: Mapping[int, float]
    ensemble: float | None = None
    merged: float | None = None
    local: float | None = None
    test_loss: float | None = None
    class_accuracy: tuple[float | None, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    away: tuple[int, ...] = ()

    def over_devices(self) -> dict[str, Any]:
        """Return the mean and the spread of the devices' accuracies."""
        each = torch.tensor(list(self.device_accuracy.values()), dtype=torch.float64)
        return {
            "device_mean": float(each.mean()),
            "device_std": float(each.std(correction=0)),
            "device_min": float(each.min()),
            "device_max": float(each.max()),
        }


@dataclass(frozen=True)
class Scored:
    """How one client-side model and the server did on an evaluation set, as little of it as is wanted."""

    labels: Tensor  # (N,)
    likelihoods: Tensor  # (N,), float64: the probability of the label
    predicted: Tensor  # (N,): the class with the largest one
    classes: int

    @property
    def accuracy(self) -> float:
        """The share of samples predicted right."""
        return float((self.predicted == self.labels).double().mean())

    @property
    def loss(self) -> float:
        """The mean negative log-likelihood."""
        return float(-self.likelihoods.clamp_min(1e-300).log().mean())

    def confusion(self) -> Tensor:
        """How many samples of each class (row) were taken for which (column)."""
        pairs = self.labels * self.classes + self.predicted
        return torch.bincount(pairs, minlength=self.classes**2).view(self.classes, self.classes)

    def by_class(self) -> Tensor:
        """The accuracy on each class, NaN where the set has no sample of it."""
        counts = self.confusion().double()
        return counts.diagonal() / counts.sum(dim=1)


def scored(probabilities: Tensor, labels: Tensor) -> Scored:
    """Return how a model did that gives these probabilities (N, C)."""
    likelihoods = probabilities.gather(1, labels[:, None])[:, 0]
    return Scored(labels, likelihoods, probabilities.argmax(dim=1), probabilities.shape[1])


def joined(batches: Sequence[Scored]) -> Scored:
    """Return how a model did on all batches of a set."""
    labels, likelihoods, predicted = (
        torch.cat([getattr(batch, name) for batch in batches])
        for name in ("labels", "likelihoods", "predicted")
    )
    return Scored(labels, likelihoods, predicted, batches[0].classes)


def evaluate(
    fleet: Fleet,
    server: nn.Module,
    split: Split,
    labels: Tensor,
    proportions: Tensor,
    *,
    shared: Whose | None,
    devices: Sequence[int] | None = None,
    measured: Callable[[int], None] = lambda devices: None,
) -> Measures:
    """Return all measures on an evaluation set; `measured` is told how many devices are done.

    `proportions` (S, C) are the devices' own label proportions; `shared` says whose client-side model
    counts where the devices do not each have their own. Devices that are away are left out, and named. Where
    devices have test samples of their own, `local` is their accuracy on them, and if `labels` is empty, which
    means that nobody else has any, all other measures are on them, too. With `devices`, only these are
    evaluated where each has a client-side model of its own.
    """
    devices = sorted(fleet.devices) if devices is None else devices
    heads = fleet if isinstance(fleet, LabelPrivate) and fleet.label_private else None
    tests = fleet if isinstance(fleet, OwnTests) and fleet.own_tests else None
    own: dict[int, Scored] = {}
    own_accuracy: dict[int, float] = {}
    if tests is not None and heads is not None:
        counted = _own_counts(tests, devices, server)
        if not len(labels):
            return _from_counts(counted, devices)
        own_accuracy = {device: share for device, share in counted.items() if share is not None}
    elif tests is not None:
        own = _own_scores(tests, devices, server, shared)
        own_accuracy = {device: one.accuracy for device, one in own.items() if len(one.labels)}
    away: list[int] = []  # devices that are not waited for
    ensemble = merged = None
    if not len(labels):
        found = own
        if not own:
            raise Unmeasured(NOBODY)
        if not any(len(one.labels) for one in own.values()):
            raise InputError(NO_TESTS)
        away = [device for device in devices if device not in own]
    elif shared is not None:
        one = scored(probabilities(server, fleet.evaluate(split, shared), len(labels)), labels)
        found = dict.fromkeys(range(len(proportions)), one)
        ensemble = merged = one.accuracy
    else:
        given: dict[int, Tensor] = {}
        if isinstance(fleet, Beside):
            for device, made in fleet.probabilities(split, len(labels), devices):
                given[device] = made
                measured(len(given))
        for done, device in enumerate([device for device in devices if device not in given]):
            measured(done)
            try:
                finish = partial(heads.head_logits, device) if heads is not None else None
                given[device] = probabilities(server, fleet.evaluate(split, device), len(labels), finish)
            except Away:
                away.append(device)
        if not given:
            raise Unmeasured(NOBODY)
        found = {device: scored(made, labels) for device, made in sorted(given.items())}
        first, *others = (made for _, made in sorted(given.items()))
        ensemble = scored(sum(others, start=first), labels).accuracy
        if fleet.merges and heads is None and not away:
            weights = {device: float(info.samples) for device, info in fleet.devices.items()}
            merged = scored(
                probabilities(server, fleet.evaluate(split, weights), len(labels)), labels
            ).accuracy
    tested = {device: one for device, one in found.items() if len(one.labels)}
    losses = [one.loss for one in tested.values()]
    by_class = torch.stack([one.by_class() for one in tested.values()])
    confusion = torch.stack([one.confusion() for one in tested.values()]).sum(dim=0)
    if tests is not None:
        local = sum(own_accuracy.values()) / len(own_accuracy) if own_accuracy else None
    else:
        local = local_accuracy(by_class, proportions[list(tested)])
    loss = losses[0] if shared is not None and len(labels) else sum(losses) / len(losses)
    classes = by_class.nanmean(dim=0) if own else by_class.mean(dim=0)
    return Measures(
        device_accuracy={device: one.accuracy for device, one in sorted(tested.items())},
        ensemble=ensemble,
        merged=merged,
        local=finite_or_none(local),
        test_loss=finite_or_none(loss),
        class_accuracy=tuple(finite_or_none(accuracy) for accuracy in classes.tolist()),
        confusion=tuple(map(tuple, confusion.tolist())),
        away=tuple(away),
    )


def local_accuracy(by_class: Tensor, proportions: Tensor) -> float:
    """Return the mean over devices of sum_c p_i(c) * accuracy of class c.

    Classes absent from the evaluation set are left out, and the proportions of the others scaled up.
    """
    known = ~by_class.isnan()
    weights = proportions.double() * known
    total = weights.sum(dim=1)
    each = (weights * by_class.nan_to_num()).sum(dim=1) / total
    return float(each[total > 0].mean())


def converged_epoch(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the first epoch whose smoothed accuracy is within a point of the best smoothed one.

    The curve is (epoch, accuracy) by evaluation; smoothing takes each with the two before it.
    """
    if not curve:
        return None
    smooth = []
    for end in range(1, len(curve) + 1):
        window = [accuracy for _, accuracy in curve[max(0, end - WINDOW) : end]]
        smooth.append(sum(window) / len(window))
    best = max(smooth)
    return next(
        epoch for (epoch, _), value in zip(curve, smooth, strict=True) if value >= best - MARGIN - ROUNDING
    )


def _own_scores(
    fleet: OwnTests, devices: Sequence[int], server: nn.Module, shared: Whose | None
) -> dict[int, Scored]:
    """Return how each device that is there does on its own test samples."""
    found: dict[int, Scored] = {}
    for device in devices:
        batches = []
        try:
            with evaluating(server):
                for activations, own in fleet.evaluate_own(device, device if shared is None else shared):
                    batches.append(scored(server(activations).cpu().double().softmax(dim=1), own.cpu()))
        except Away:
            continue
        found[device] = joined(batches)
    return found


def _own_counts(fleet: OwnTests, devices: Sequence[int], server: nn.Module) -> dict[int, float | None]:
    """Return the accuracy of each device that is there on its own test samples, if any; it counts itself."""
    found: dict[int, float | None] = {}
    for device in devices:
        samples = right = 0
        try:
            with evaluating(server):
                for batch, (activations, _) in enumerate(fleet.evaluate_own(device, device)):
                    right += fleet.head_correct(device, batch, server(activations))
                    samples += len(activations)
        except Away:
            continue
        found[device] = right / samples if samples else None
    return found


def _from_counts(counted: Mapping[int, float | None], devices: Sequence[int]) -> Measures:
    """Return the measures where devices' own counts are all there is."""
    if not counted:
        raise Unmeasured(NOBODY)
    accuracy = {device: share for device, share in counted.items() if share is not None}
    if not accuracy:
        raise InputError(NO_TESTS)
    found = Measures(accuracy, away=tuple(device for device in devices if device not in counted))
    return replace(found, local=found.over_devices()["device_mean"])
