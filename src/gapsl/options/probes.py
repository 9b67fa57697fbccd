"""Common ground: halves that never meet are held together by what they make of the same pictures.

The last rows of every upload are activations of probes, inputs that are the same for all devices in a
round. They are in no loss. The leader is what the devices make of them on average, or those of them that
agree most (the paper's leader identification, on activations instead of gradients), and each device is
pulled towards it: the gradient of weight/2 · |a_i - leader|² / |leader|² at those rows. Where the halves
compute the same, this is zero; where one has strayed, it is led back, without anybody seeing its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gapsl.alignment.geometry import pairwise_angles
from gapsl.alignment.leader import consistency_scores, select
from gapsl.device.exchange import Outcome, Reply, Upload
from gapsl.models.half import all_finite

TINY = 1e-12
FAR_OFF = 2.0  # times the usual length, or that part of it: halves that agree differ by some percent


class CommonGround:
    """Takes the probes out of uploads, and puts the pull towards the leader into the replies."""

    def __init__(self, rows: int, weight: float | None, share: float = 1.0) -> None:
        self.rows, self.weight, self.share = rows, weight, share
        self._seen: dict[int, Tensor] = {}

    def without_probes(self, uploads: Iterable[Upload]) -> Iterator[Upload]:
        """Yield uploads without their last rows, which are remembered."""
        self._seen.clear()
        for upload in uploads:
            self._seen[upload.device] = upload.activations[-self.rows :]
            yield replace(
                upload, activations=upload.activations[: -self.rows], labels=upload.labels[: -self.rows]
            )

    def pulled(self, outcome: Outcome) -> Outcome:
        """Return an outcome whose replies have the pull at the probes' rows.

        A device that a method left out of the round is led back all the same; one whose numbers were not
        finite, at the probes or elsewhere, skips its step and leads nobody.
        """
        sick = {device for device, seen in self._seen.items() if not all_finite(seen)}
        left_out = sick | set(outcome.skipped)
        sound = {d: seen for d, seen in sorted(self._seen.items()) if d not in left_out}
        found: dict[int, Tensor] = {}
        details: dict[str, Any] = dict(outcome.details)
        if sound:
            scores = scores_of(sound)
            members = members_of(sound, scores, self.share)
            leader = leader_of(sound, members)
            found = pulls(sound, leader, self.weight)
            if len(sound) > 1:
                details["apart"] = apart(sound, leader)
                details["probe_scores"] = dict(zip(sound, scores.tolist(), strict=True))
            if self.share < 1:
                details["probe_leaders"] = list(members)
        replies: dict[int, Reply] = {}
        for device, reply in outcome.replies.items():
            pull = found.get(device, torch.zeros_like(self._seen[device]))
            # Where the probes are not finite, the half is not either: no gradient of its is to be trusted.
            step = device not in sick and (reply.step or device in found)
            replies[device] = Reply(torch.cat([reply.gradient, pull]), step)
        skipped = tuple(sorted(left_out & set(outcome.replies)))
        return replace(outcome, replies=replies, details=details, skipped=skipped)


def scores_of(seen: Mapping[int, Tensor]) -> Tensor:
    """Return each device's mean angle to the others on the probes, in ascending device id."""
    rows = torch.stack([seen[device].flatten() for device in sorted(seen)])
    return consistency_scores(pairwise_angles(rows))


def members_of(seen: Mapping[int, Tensor], scores: Tensor, share: float) -> tuple[int, ...]:
    """Return the devices that lead: this share of them, those that agree most in direction and length."""
    devices = sorted(seen)
    if share == 1:
        return tuple(devices)
    # Angles do not see lengths: who shouts, or whispers, is as far off as who looks elsewhere.
    lengths = torch.stack([seen[device].norm() for device in devices]).double()
    usual = lengths.median()
    sound = (lengths > 0) & (lengths <= usual * FAR_OFF) & (lengths >= usual / FAR_OFF)
    return tuple(devices[i] for i in select(scores, share, nonzero=sound))


def leader_of(seen: Mapping[int, Tensor], members: Sequence[int]) -> Tensor:
    """Return the mean of what these devices make of the probes, added in the order given."""
    total = torch.zeros_like(seen[members[0]])
    for device in members:
        total.add_(seen[device])
    return total.div_(len(members))


def pulls(seen: Mapping[int, Tensor], leader: Tensor, weight: float | None) -> dict[int, Tensor]:
    """Return for every device the gradient of weight/2 · |a_i - leader|² / |leader|², the leader held.

    Without a weight it is a_i - leader itself, for devices that find their way by that (training.meeting).
    """
    scale = 1.0 if weight is None else weight / leader.square().sum().clamp_min(TINY)
    return {device: (activations - leader) * scale for device, activations in seen.items()}


def apart(seen: Mapping[int, Tensor], leader: Tensor) -> float:
    """Return how far the devices are from their leader, relative to its length: the root mean square."""
    squares = [float((activations - leader).square().sum()) for activations in seen.values()]
    return float((sum(squares) / len(squares) / leader.square().sum().clamp_min(TINY).item()) ** 0.5)
