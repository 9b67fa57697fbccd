"""BatchNorm on a server that serves many devices in one round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Statistics = list[tuple[Tensor, Tensor]]  # a layer's batch mean and (unbiased) variance


class RunningStatistics:
    """The running buffers of a model's BatchNorm layers, updated when we say and not as passes happen.

    Each device's pass normalises with that device's batch. The running buffers change once after the round,
    by its batches taken together, whatever order uploads arrived in; further passes of a round never touch
    them.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]

    @contextmanager
    def captured(self) -> Iterator[Statistics]:
        """Collect the batch statistics of the forward passes inside, leaving the running buffers alone."""
        if not self._layers:
            yield []
            return
        kept = [(m.running_mean, m.running_var, m.num_batches_tracked, m.momentum) for m in self._layers]
        for layer in self._layers:
            assert layer.running_mean is not None and layer.running_var is not None
            layer.running_mean = torch.zeros_like(layer.running_mean)
            layer.running_var = torch.zeros_like(layer.running_var)
            layer.num_batches_tracked = None
            layer.momentum = 1.0  # a running mean that forgets everything is the batch's own
        statistics: Statistics = []
        try:
            yield statistics
            for layer in self._layers:
                assert layer.running_mean is not None and layer.running_var is not None
                statistics.append((layer.running_mean, layer.running_var))
        finally:
            for layer, (mean, variance, count, momentum) in zip(self._layers, kept, strict=True):
                layer.running_mean, layer.running_var = mean, variance
                layer.num_batches_tracked, layer.momentum = count, momentum

    def update(self, batches: Sequence[Statistics]) -> None:
        """Move the running buffers once, by the statistics of these batches, which are equally large."""
        for layer, *each in zip(self._layers, *batches, strict=True):
            mean, variance = together(each)
            assert layer.running_mean is not None and layer.running_var is not None
            assert layer.num_batches_tracked is not None
            layer.num_batches_tracked.add_(1)
            momentum = layer.momentum
            if momentum is None:  # torch's word for a plain average over all batches
                momentum = 1.0 / float(layer.num_batches_tracked)
            layer.running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
            layer.running_var.mul_(1 - momentum).add_(variance, alpha=momentum)


def together(batches: Statistics) -> tuple[Tensor, Tensor]:
    """Return mean and variance of equally large batches as one, by the law of total variance."""
    means = torch.stack([mean for mean, _ in batches])
    variances = torch.stack([variance for _, variance in batches])
    return means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)
