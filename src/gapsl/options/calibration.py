"""Prior calibration: a loss that does not teach the model how often a device sees which class.

A device with few classes has gradients that are mostly its label frequencies: predict what is frequent
here, never what is absent. Shifting the logits by tau * log of those frequencies inside the loss makes
the loss explain them, so that no gradient has to (Menon et al., "Long-tail learning via logit
adjustment", ICLR 2021; in split learning SCALA, arXiv 2405.04875; in federated learning FedLC, arXiv
2209.00189). The shift is part of the loss alone: predictions use the plain logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gapsl.device.exchange import Exchange, Outcome, Upload
from gapsl.methods.base import Strategy
from gapsl.methods.server_model import Loss
from gapsl.options.base import Option

SMOOTHING = (
    0.01  # the share of the frequencies spread over all classes: what is not seen is rare, not impossible
)


def log_frequencies(counts: Tensor) -> Tensor:
    """Return the logarithm of smoothed label frequencies, from counts by class (C,)."""
    seen = counts.double() / counts.sum().clamp_min(1)
    uniform = torch.full_like(seen, 1 / len(seen))
    return (uniform if counts.sum() == 0 else (1 - SMOOTHING) * seen + SMOOTHING * uniform).log()


class PriorCalibration:
    """A loss on logits + tau * log(label frequencies of the device).

    With `counts` the frequencies are what the devices declared; without, those of the labels seen so far,
    which `SeenLabels` counts between exchanges, so that every pass of a round has the same loss.
    """

    def __init__(
        self, loss: Loss, *, classes: int, tau: float = 1.0, counts: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        self.loss, self.classes, self.tau = loss, classes, tau
        self._counts = {device: torch.tensor(found) for device, found in (counts or {}).items()}
        self._shifts: dict[int, Tensor] = {}

    def __call__(self, logits: Tensor, labels: Tensor, device: int) -> Tensor:
        """Return the loss of a device's batch with its label frequencies taken out."""
        if self.tau == 0:
            return self.loss(logits, labels, device)
        return self.loss(logits + self.shift(device).to(logits), labels, device)

    def shift(self, device: int) -> Tensor:
        """Return what is added to a device's logits (C,)."""
        if device not in self._shifts:
            counts = self._counts.get(device, torch.zeros(self.classes))
            self._shifts[device] = self.tau * log_frequencies(counts)
        return self._shifts[device]

    def see(self, device: int, labels: Tensor) -> None:
        """Count the labels a device sent."""
        found = torch.bincount(labels.cpu(), minlength=self.classes)
        self._counts[device] = self._counts.get(device, torch.zeros_like(found)) + found
        self._shifts.pop(device, None)

    def state(self) -> dict[str, Any]:
        """Return the counts of what was seen, as JSON values."""
        return {str(device): counts.tolist() for device, counts in sorted(self._counts.items())}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._counts = {int(device): torch.tensor(counts) for device, counts in state.items()}
        self._shifts.clear()


class SeenLabels(Option):
    """Counts the labels that devices send, for a calibration that nobody declared frequencies to."""

    def __init__(self, method: Strategy, calibration: PriorCalibration) -> None:
        super().__init__(method)
        self.calibration = calibration

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Answer as the method does, and count the labels afterwards."""
        seen: list[tuple[int, Tensor]] = []
        outcome = self.method.step(round, exchange, _noting(uploads, seen), measure=measure)
        for device, labels in seen:
            self.calibration.see(device, labels)
        return outcome

    def passes_state(self) -> dict[str, Any]:
        """Return the counts, which the calibrated loss depends on."""
        return self.calibration.state()

    def load_passes_state(self, state: Mapping[str, Any]) -> None:
        self.calibration.load_state(state)

    def state(self) -> dict[str, Any]:
        """Return the method's state and the counts."""
        return {**self.method.state(), "calibration": self.calibration.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.method.load_state(state)
        self.calibration.load_state(state["calibration"])


def _noting(uploads: Iterable[Upload], seen: list[tuple[int, Tensor]]) -> Iterator[Upload]:
    """Pass uploads on, noting whose labels they bring."""
    for upload in uploads:
        seen.append((upload.device, upload.labels))
        yield upload
