"""What is known of a run: its settings, its rounds, its evaluations and the devices' labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.methods.base import Strategy
from gapsl.methods.registry import METHODS


@dataclass(frozen=True)
class Evaluation:
    """Accuracy after a round, and whose."""

    round: int
    split: str  # test or validation
    device_mean: float
    ensemble: float
    merged: float | None  # None where nobody may see the halves
    local: float | None
    device_accuracy: tuple[float | None, ...]  # None: it was away, or has no test samples
    class_accuracy: tuple[float | None, ...]  # None: the evaluation set has no sample of it
    drift: Mapping[int, float] | None = None  # relative distance from the start; None: not recorded


@dataclass(frozen=True)
class Round:
    """One round, as far as a diagnosis reads it. Angles are in radians."""

    number: int
    epoch: float
    loss: float | None  # None: no device had a finite one
    losses: Mapping[int, float]
    skipped: frozenset[int]
    norms: Mapping[int, float] | None  # of the gradients devices trained on; None: not recorded
    kept: frozenset[int] | None  # None: the method leaves nobody out
    scores: Mapping[int, float]  # a device's mean angle to the others; empty: not measured
    dispersion: float | None
    angle: float | None  # mean over all pairs
    averaged: bool
    seconds: Mapping[str, float]
    sent: int  # bytes of all devices
    received: int
    evaluation: Evaluation | None = None
    apart: float | None = None  # of the halves on the probes, relative to the leader; None: no probes
    probe_scores: Mapping[int, float] = field(default_factory=dict)  # like scores, on the probes
    probe_leaders: frozenset[int] | None = None  # None: everybody leads there
    absent: frozenset[int] = frozenset()  # devices that the round was closed without

    @property
    def present(self) -> frozenset[int]:
        """The devices that took part."""
        return frozenset(self.losses) | self.skipped


@dataclass(frozen=True, eq=False)
class Labels:
    """How many samples of each class each device has, shape (devices, classes), and the classes' names."""

    counts: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def proportions(self) -> NDArray[np.float64]:
        """Each device's label proportions, a row each."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    @property
    def pooled(self) -> NDArray[np.float64]:
        """The label proportions of all data together."""
        return np.asarray(self.counts.sum(axis=0) / self.counts.sum())


@dataclass(frozen=True, eq=False)
class Evidence:
    """A run as its files tell it; there is at least one round."""

    settings: Mapping[str, Any]
    rounds: tuple[Round, ...]
    total_rounds: int
    finished: bool
    labels: Labels | None = None
    unseen: tuple[str, ...] = ()  # what could not be examined, and why
    names: tuple[str, ...] = ()  # of the devices, where they have some

    def setting(self, name: str) -> Any:
        """Return a setting by its dotted name, None if the run has none of that name."""
        found: Any = self.settings
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    @property
    def method(self) -> str:
        """The method's name, which may be one that somebody else registered."""
        return str(self.settings["method"])

    @property
    def pooled(self) -> bool:
        """Whether all data were in one place, so that no device has labels of its own."""
        return self.method in METHODS and METHODS[self.method].pooled

    @cached_property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """All evaluations so far."""
        return tuple(round.evaluation for round in self.rounds if round.evaluation is not None)

    @property
    def last(self) -> Evaluation | None:
        """The newest evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    @cached_property
    def own_halves(self) -> bool:
        """Whether every device trains a half of its own, so that they can drift apart."""
        if self.method in METHODS:
            strategy = METHODS[self.method]
            return strategy.shared_half is Strategy.shared_half and self.method != "frozen"
        # A method that is not registered here: shared halves are right and wrong together.
        return not self.evaluations or any(len(set(e.device_accuracy) - {None}) > 1 for e in self.evaluations)

    @property
    def chance(self) -> float | None:
        """The accuracy of guessing, where the number of classes is known."""
        return 1 / len(self.last.class_accuracy) if self.last and self.last.class_accuracy else None

    def who(self, device: int) -> str:
        """Return a device's number, and its name if it has one."""
        return f"{device} ({self.names[device]})" if device < len(self.names) else str(device)

    def class_name(self, index: int) -> str:
        """Return a class's name, its number where names are not known."""
        return self.labels.classes[index] if self.labels is not None else str(index)
