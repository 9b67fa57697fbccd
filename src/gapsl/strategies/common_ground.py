"""Common ground: halves that never meet are held together by what they make of the same pictures.

The last rows of every upload are activations of probes, inputs that are the same for all devices in a
round. They are in no loss. The leader is what the devices make of them on average, and each device is
pulled towards it: the gradient of weight/2 · |a_i - leader|² / |leader|² at those rows. Where the halves
compute the same, this is zero; where one has strayed, it is led back, without anybody seeing its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gapsl.strategies.exchange import Outcome, Reply, Upload

TINY = 1e-12


class CommonGround:
    """Takes the probes out of uploads, and puts the pull towards the leader into the replies."""

    def __init__(self, rows: int, weight: float) -> None:
        self.rows, self.weight = rows, weight
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
        finite skips its step.
        """
        sound = {d: seen for d, seen in sorted(self._seen.items()) if d not in outcome.skipped}
        found = pulls(sound, self.weight) if sound else {}
        replies: dict[int, Reply] = {}
        for device, reply in outcome.replies.items():
            pull = found.get(device, torch.zeros_like(self._seen[device]))
            step = reply.step or device in found
            replies[device] = Reply(torch.cat([reply.gradient, pull]), step)
        details: dict[str, Any] = dict(outcome.details)
        if sound:
            details["apart"] = apart(sound)
        return replace(outcome, replies=replies, details=details)


def leader_of(seen: Mapping[int, Tensor]) -> Tensor:
    """Return the mean of what the devices make of the probes, added in ascending device id."""
    total = torch.zeros_like(next(iter(seen.values())))
    for _, activations in sorted(seen.items()):
        total.add_(activations)
    return total.div_(len(seen))


def pulls(seen: Mapping[int, Tensor], weight: float) -> dict[int, Tensor]:
    """Return for every device the gradient of weight/2 · |a_i - leader|² / |leader|², the leader held."""
    leader = leader_of(seen)
    scale = weight / leader.square().sum().clamp_min(TINY)
    return {device: (activations - leader) * scale for device, activations in seen.items()}


def apart(seen: Mapping[int, Tensor]) -> float:
    """Return how far the devices are from their leader, relative to its length: the root mean square."""
    leader = leader_of(seen)
    squares = [float((activations - leader).square().sum()) for activations in seen.values()]
    return float((sum(squares) / len(squares) / leader.square().sum().clamp_min(TINY).item()) ** 0.5)
