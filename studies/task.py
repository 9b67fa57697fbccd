"""What all runs of the study have in common: the pictures, the net, the losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from gapsl.data import ArraySamples, Source
from gapsl.options.balance import BalancedCrossEntropy
from gapsl.options.calibration import log_frequencies
from studies.runs import Loss

PICTURES, HELD_OUT = 22_000, 2_000
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.22, 0.22, 0.24)  # pooling takes away some of the deviation
WIDTH = 8
FAST = torch.channels_last  # the layout in which small convolutions are fastest on a CPU


@dataclass(frozen=True)
class Setting:
    """What is the same for all runs."""

    devices: int = 10
    partition: str = "dirichlet:0.1,min=40"
    batch_size: int = 16
    server_lr: float = 0.1
    momentum: float = 0.9
    warm_up: int = 20  # rounds


def small_pictures(source: Source, count: int = PICTURES, held_out: int = HELD_OUT) -> Source:
    """Return so many training pictures at half their size, some of them held out for validation.

    Those stand where a source has its test part; the test part of the source given is never read.
    """
    chosen = torch.from_numpy(np.sort(np.random.default_rng(0).permutation(len(source.train))[:count]))
    pictures, labels = F.avg_pool2d(source.train.read(chosen).float() / 255, 2), source.train.labels[chosen]
    validation = ArraySamples(pictures[:held_out], labels[:held_out])
    train = ArraySamples(pictures[held_out:], labels[held_out:])
    return Source(f"small {source.name}", train, validation, source.classes, MEAN, STD)


def build(classes: int, *, cut_norm: bool = False) -> tuple[nn.Sequential, nn.Sequential]:
    """Return client-side and server-side model; group normalisation keeps a batch's rows independent."""

    def block(before: int, after: int) -> list[nn.Module]:
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        return [convolution, nn.GroupNorm(after // 4, after), nn.ReLU()]

    w = WIDTH
    device = [*block(3, w), *block(w, w), nn.MaxPool2d(2), *block(w, 2 * w), *block(2 * w, 2 * w)]
    if cut_norm:
        device.append(nn.GroupNorm(1, 2 * w, affine=False))
    body = [*block(2 * w, 4 * w), *block(4 * w, 4 * w), nn.MaxPool2d(2), *block(4 * w, 8 * w)]
    server = [*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * w, classes)]
    return fast(nn.Sequential(*device)), fast(nn.Sequential(*server))


def fast(model: nn.Sequential) -> nn.Sequential:
    """Return the model with its weights in the fast layout."""
    found: nn.Sequential = model.to(memory_format=FAST)  # type: ignore[call-overload]  # torch left it out
    return found


class Losses:
    """The losses of the study, each a mean over rows that may belong to several devices."""

    def __init__(self, counts: NDArray[np.int64], tau: float = 1.0) -> None:
        frequencies = [log_frequencies(torch.from_numpy(found)) for found in counts]
        self.shifts = tau * torch.stack(frequencies).float()
        self.weights = BalancedCrossEntropy(counts.tolist()).weights.float()

    def __call__(self, kind: Loss, logits: Tensor, labels: Tensor, owners: Tensor) -> Tensor:
        """Return the mean loss of rows that belong to the devices `owners`."""
        if kind == "prior":
            logits = logits + self.shifts[owners]
        each = F.cross_entropy(logits, labels, reduction="none")
        return (each * self.weights[labels] if kind == "balanced" else each).mean()
