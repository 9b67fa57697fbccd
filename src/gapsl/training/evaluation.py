"""Accuracy, and whose: every measure from one pass of the test set per client-side model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.training.fleet import Away, Fleet, Rewind, Split, Whose


@dataclass(frozen=True)
class Scored:
    """How one client-side model and the server did on an evaluation set."""

    probabilities: Tensor  # (N, C), float64
    labels: Tensor  # (N,)

    @property
    def accuracy(self) -> float:
        """The share of samples predicted right."""
        return accuracy_of(self.probabilities, self.labels)

    @property
    def loss(self) -> float:
        """The mean negative log-likelihood."""
        right = self.probabilities.gather(1, self.labels[:, None])
        return float(-right.clamp_min(1e-300).log().mean())

    def by_class(self) -> Tensor:
        """The accuracy on each class, NaN where the set has no sample of it."""
        classes = self.probabilities.shape[1]
        hits = (self.probabilities.argmax(dim=1) == self.labels).double()
        totals = torch.bincount(self.labels, minlength=classes).double()
        return torch.bincount(self.labels, weights=hits, minlength=classes) / totals


def evaluate(
    fleet: Fleet,
    server: nn.Module,
    split: Split,
    labels: Tensor,
    proportions: Tensor,
    *,
    shared: Whose | None,
) -> dict[str, Any]:
    """Return all measures on an evaluation set.

    `proportions` (S, C) are the devices' own label proportions; `shared` says whose client-side model
    counts where the devices do not each have their own. Devices that are away are left out, and named.
    """
    away: list[int] = []  # devices that are not waited for
    if shared is not None:
        scored = _score(server, fleet.probe(split, shared), labels)
        each = [scored.accuracy] * len(proportions)
        by_class = scored.by_class()[None, :].expand(len(proportions), -1)
        ensemble = merged = scored.accuracy
        loss = scored.loss
    else:
        total = torch.zeros(0)
        each, losses, rows = [], [], []
        for device in sorted(fleet.devices):
            try:
                scored = _score(server, fleet.probe(split, device), labels)
            except Away:
                away.append(device)
                continue
            each.append(scored.accuracy)
            losses.append(scored.loss)
            rows.append(scored.by_class())
            total = scored.probabilities if len(each) == 1 else total + scored.probabilities
        if not rows:
            raise Rewind("no device was there to be evaluated")
        by_class = torch.stack(rows)
        proportions = proportions[[device for device in range(len(proportions)) if device not in away]]
        ensemble = accuracy_of(total, labels)
        loss = sum(losses) / len(losses)
        merged = None
        if fleet.merges and not away:
            weights = {device: float(info.samples) for device, info in fleet.devices.items()}
            merged = _score(server, fleet.probe(split, weights), labels).accuracy
    accuracies = torch.tensor(each, dtype=torch.float64)
    return {
        "device_mean": float(accuracies.mean()),
        "device_std": float(accuracies.std(correction=0)),
        "device_min": float(accuracies.min()),
        "device_max": float(accuracies.max()),
        "ensemble": ensemble,
        "merged": merged,
        "local": local_accuracy(by_class, proportions),
        "test_loss": loss,
        "device_accuracy": each,
        "class_accuracy": by_class.mean(dim=0).tolist(),
        **({"away": away} if away else {}),
    }


def local_accuracy(by_class: Tensor, proportions: Tensor) -> float:
    """Return the mean over devices of sum_c p_i(c) * accuracy of class c.

    Classes absent from the evaluation set are left out, and the proportions of the others scaled up.
    """
    known = ~by_class.isnan()
    weights = proportions.double() * known
    total = weights.sum(dim=1)
    each = (weights * by_class.nan_to_num()).sum(dim=1) / total
    return float(each[total > 0].mean())


def accuracy_of(scores: Tensor, labels: Tensor) -> float:
    """Return the share of rows whose largest score is at the label."""
    return float((scores.argmax(dim=1) == labels).double().mean())


def _score(server: nn.Module, activations: Iterator[Tensor], labels: Tensor) -> Scored:
    server.eval()
    try:
        with torch.no_grad():
            rows = [server(batch).cpu().double().softmax(dim=1) for batch in activations]
    finally:
        server.train()
    return Scored(torch.cat(rows), labels)
