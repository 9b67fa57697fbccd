"""Who counts how much in a round, judged by the angles of the devices' gradients to their leader's."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gapsl.alignment import Leader, align, angles_to, identify_leader, keep_within, mean_of_rows
from gapsl.alignment.leader import select
from studies.runs import Selection, Weighting

K_MIN, K_MAX = 0.2, 0.8


class Verdict(NamedTuple):
    """What each device counts; one whose reply counts nothing skips its step, momentum included."""

    on_server: Tensor  # (S,), the weights of a weighted mean
    replies: Tensor  # (S,), 1 for a reply as it is


class Running:
    """A running mean that starts at its first value; with decay 0 it is the last one."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.value: Tensor | None = None

    def update(self, new: Tensor) -> Tensor:
        """Take in a value, and return the mean."""
        self.value = new.clone() if self.value is None else self.value.lerp(new, 1 - self.decay)
        return self.value

    def relative(self, new: Tensor) -> Tensor:
        """Return how far a value is from the mean of those before it, and take it in."""
        before = new if self.value is None else self.value
        self.update(new)
        return new - before


def make_judge(how: Selection | Weighting, *, rounds: int, classifier: int) -> Excluding | Weighing:
    """Return the judge of a run; the last `classifier` numbers of a gradient are the classifier's."""
    if isinstance(how, Weighting):
        return Weighing(how, rounds)
    return Excluding(how, rounds, classifier)


class Leading:
    """What every judge does first: find the leader as GAPSL does."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.spread: tuple[float, float] | None = None

    def lead(self, round: int, gradients: Tensor) -> Leader:
        """Return the leader of a round's gradients (S, d)."""
        limits = {"k_min": K_MIN, "k_max": K_MAX}
        leader = identify_leader(
            gradients, round=round, total_rounds=self.rounds, spread=self.spread, **limits
        )
        self.spread = leader.spread
        return leader


class Weighing(Leading):
    """Devices count by the cosine of their angle to the leader, those beyond 90 degrees not at all."""

    def __init__(self, how: Weighting, rounds: int) -> None:
        super().__init__(rounds)
        self.how = how

    def __call__(self, round: int, gradients: Tensor) -> Verdict:
        """Judge a round's gradients (S, d)."""
        cosines = angles_to(gradients, self.lead(round, gradients).gradient).cos().clamp_min(0).float()
        return Verdict(cosines if self.how.on_server else torch.ones_like(cosines), cosines)


class Excluding(Leading):
    """Devices beyond a threshold around the leader's gradient are left out of the round."""

    def __init__(self, how: Selection, rounds: int, classifier: int) -> None:
        super().__init__(rounds)
        self.how = how
        self.ignored = 0 if how.classifier else classifier
        self.smoothed = Running(how.leader_decay)
        self.usual = None if how.usual is None else (Running(how.usual), Running(how.usual))
        self.missed: list[int] = []  # for every device, the rounds in a row it was left out

    def __call__(self, round: int, gradients: Tensor) -> Verdict:
        """Judge a round's gradients (S, d)."""
        devices, numbers = gradients.shape
        kept = self.capped(self.keep(round, gradients[:, : numbers - self.ignored]), devices)
        chosen = torch.zeros(devices)
        chosen[kept] = 1.0
        return Verdict(chosen, torch.ones_like(chosen) if self.how.excluded_train else chosen)

    def keep(self, round: int, gradients: Tensor) -> tuple[int, ...]:
        """Return who is within the threshold."""
        smoothed = self.smoothed.update(gradients)
        leader = self.lead(round, smoothed)
        if self.usual is None:
            return align(gradients, leader.gradient, eta=self.how.eta).kept
        # Both of GAPSL's angles are taken relative to the device's own mean: that to the others, by which
        # it leads, and that to the leader, by which it is kept. A cap at 90 degrees says nothing of them.
        scores, angles = self.usual
        members = select(scores.relative(leader.scores), leader.ratio, nonzero=smoothed.any(dim=1))
        to_leader = angles.relative(angles_to(gradients, mean_of_rows(smoothed, members)))
        threshold = to_leader.mean() - self.how.eta * to_leader.std(correction=0)
        return keep_within(to_leader, float(threshold)).kept

    def capped(self, kept: tuple[int, ...], devices: int) -> list[int]:
        """Return who is kept if those who missed as many rounds as they may are kept, too."""
        if self.how.cap is None:
            return list(kept)
        missed = self.missed or [0] * devices
        stay = [d for d in range(devices) if d in kept or missed[d] >= self.how.cap]
        self.missed = [0 if d in stay else missed[d] + 1 for d in range(devices)]
        return stay
