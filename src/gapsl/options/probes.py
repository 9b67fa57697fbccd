"""Probe alignment on the server: client-side models agree on what they make of the same pictures.

Uploads bring the activations of probes, inputs that are the same for all devices in a round and in no loss.
The leader is the mean of what the devices that agree make of them; with a share below 1, of that share of all
devices, those that agree most (the paper's leader identification, on activations). Each device is pulled
towards it: by the gradient of weight/2 · |a_i - leader|² / |leader|², which is zero where the client-side
models compute the same. A model that has drifted is led back, without anybody seeing its weights.

Devices may agree on gradients, too: a second exchange brings what a step along each device's gradient would
do to the probes, and takes back the mean. All then take one step, and their models stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gapsl.alignment import consistency_scores, mean_of_rows, pairwise_angles
from gapsl.alignment.leader import select
from gapsl.device.exchange import Exchange, Outcome, ProbeRecord, Reply, Upload
from gapsl.methods.base import RunInfo, Strategy
from gapsl.methods.robust import clipped, typical
from gapsl.models.part import all_finite
from gapsl.options.base import Option

TINY = 1e-12
SICK = "what it makes of the probes is not finite"
FAR_OFF = 2.0  # times the usual length, or that part of it: models that agree differ by some percent
UNLIKE = 3.0  # times the usual angle to most others
SHOUTING = 10.0  # times the usual length of proposals, which differ more than what models make of pictures
HONEST = 0.7  # that length is one that so many are below: of ten devices, three that shout do not move it
CLOSE = math.radians(20)  # devices within that of most others agree, whatever is usual


class ProbeAlignment(Option):
    """Puts the pull towards the leader on the probes into a method's replies.

    Records say how far apart the models are (`ProbeRecord`).
    """

    def __init__(
        self, method: Strategy, weight: float | None, share: float = 1.0, *, gradients: bool = False
    ) -> None:
        super().__init__(method)
        self.weight, self.share, self.gradients = weight, share, gradients
        self._left_out: Mapping[int, str] = {}  # by the exchange before: their gradients do not count

    def exchanges(self, round: int, present: Sequence[int]) -> Iterator[Exchange]:
        """Let the devices send their proposals after everything else, if they agree on gradients."""
        turn = 0
        for exchange in self.method.exchanges(round, present):
            yield exchange
            turn = exchange.turn + 1
        if self.gradients and self.method.trains_devices:
            yield Exchange(tuple(sorted(present)), turn, proposes=True)

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Answer as the method does, with a pull for every device."""
        if exchange.proposes:
            return agreed(uploads, self._left_out, self.run)
        seen: dict[int, Tensor] = {}
        outcome = self.method.step(round, exchange, _noting(uploads, seen), measure=measure)
        pulled = self.pulled(outcome, seen)
        self._left_out = pulled.skipped
        return pulled

    def pulled(self, outcome: Outcome, seen: Mapping[int, Tensor]) -> Outcome:
        """Return an outcome whose replies have a pull, by what the devices make of the probes.

        A device that a method left out of the round is led back all the same; one whose numbers were not
        finite, at the probes or elsewhere, skips its step and leads nobody.
        """
        sick = {device: SICK for device, activations in seen.items() if not all_finite(activations)}
        left_out = {**sick, **outcome.skipped}
        sound = {d: activations for d, activations in sorted(seen.items()) if d not in left_out}
        found: dict[int, Tensor] = {}
        record = ProbeRecord()
        if sound:
            angles = angles_of(sound)
            scores = consistency_scores(angles)
            members = members_of(sound, angles, self.share)
            leader = leader_of(sound, members)
            found = pulls(sound, leader, self.weight)
            several = len(sound) > 1
            record = ProbeRecord(
                apart=apart(sound, leader) if several else None,
                scores=dict(zip(sound, scores.tolist(), strict=True)) if several else {},
                leaders=members if len(members) < len(sound) else None,
            )
        replies: dict[int, Reply] = {}
        for device, reply in outcome.replies.items():
            pull = found.get(device, torch.zeros_like(seen[device]))
            # Where the probes are not finite, the model is not either: no gradient of its is to be trusted.
            step = device not in sick and (reply.step or device in found)
            replies[device] = Reply(reply.gradient, step, pull)
        return replace(outcome, replies=replies, probes=record, skipped=left_out)


def agreed(uploads: Iterable[Upload], left_out: Collection[int], run: RunInfo) -> Outcome:
    """Answer proposals with their mean, or the robust estimate in its place: everybody takes that step.

    Who was left out of the round, or has nothing to propose, does not count; who shouts is shortened.
    """
    sent = {u.device: (u, u.probes) for u in uploads if u.probes is not None}
    lengths = {d: float(found.norm()) for d, (_, found) in sorted(sent.items()) if d not in left_out}
    lengths = {d: length for d, length in lengths.items() if 0 < length < math.inf}
    step = None
    if lengths:
        usual = sorted(lengths.values())[int(HONEST * (len(lengths) - 1))]
        shares = {d: min(1.0, SHOUTING * usual / length) for d, length in lengths.items()}
        rows = torch.stack([sent[d][1].flatten() * share for d, share in shares.items()])
        step = estimate(clipped(rows) if run.robust == "clip" else rows, range(len(rows)), run)
    replies = {
        device: Reply(
            upload.activations,
            step is not None,
            torch.zeros_like(found) if step is None else step.view_as(found),
        )
        for device, (upload, found) in sorted(sent.items())
    }
    return Outcome(replies, {})


def estimate(rows: Tensor, counted: Sequence[int], run: RunInfo) -> Tensor:
    """Return the mean of rows, or the robust estimate in its place."""
    if run.robust in ("median", "trimmed"):
        return typical(rows, counted, run.robust, run.robust_trim)
    return mean_of_rows(rows, counted)


def _noting(uploads: Iterable[Upload], seen: dict[int, Tensor]) -> Iterator[Upload]:
    """Pass uploads on, noting what devices make of the probes."""
    for upload in uploads:
        if upload.probes is not None:
            seen[upload.device] = upload.probes
        yield upload


def angles_of(seen: Mapping[int, Tensor]) -> Tensor:
    """Return the angles between the devices on the probes, in ascending device id."""
    return pairwise_angles(torch.stack([seen[device].flatten() for device in sorted(seen)]))


def members_of(seen: Mapping[int, Tensor], angles: Tensor, share: float) -> tuple[int, ...]:
    """Return the devices that lead: this share of them, those that agree most, and nobody who is far off.

    Where nobody agrees all are candidates; of two devices nobody knows which is far off.
    """
    devices = sorted(seen)
    # Angles do not see lengths: who shouts, or whispers, is as far off as who looks elsewhere.
    lengths = torch.stack([seen[device].norm() for device in devices]).cpu().double()
    usual = lengths.median()
    sound = lengths > 0
    if len(devices) > 2:
        sound &= (lengths <= usual * FAR_OFF) & (lengths >= usual / FAR_OFF)
    # The angle within which most others are; the mean angle would be moved by who is far off.
    usually = angles.sort(dim=1).values[:, len(devices) // 2]
    agreeing = usually <= max(UNLIKE * float(usually.median()), CLOSE)
    scores = consistency_scores(angles)
    return tuple(devices[i] for i in select(scores, share, nonzero=sound & agreeing))


def leader_of(seen: Mapping[int, Tensor], members: Sequence[int]) -> Tensor:
    """Return the mean of what these devices make of the probes, added in the order given."""
    total = torch.zeros_like(seen[members[0]])
    for device in members:
        total.add_(seen[device])
    return total.div_(len(members))


def pulls(seen: Mapping[int, Tensor], leader: Tensor, weight: float | None) -> dict[int, Tensor]:
    """Return for every device the gradient of weight/2 · |a_i - leader|² / |leader|², the leader held.

    Without a weight it is a_i - leader itself, for devices that solve for the change.
    """
    scale = 1.0 if weight is None else weight / leader.square().sum().clamp_min(TINY)
    return {device: (activations - leader) * scale for device, activations in seen.items()}


def apart(seen: Mapping[int, Tensor], leader: Tensor) -> float:
    """Return how far the devices are from their leader, relative to its length: the root mean square."""
    squares = [float((activations - leader).square().sum()) for activations in seen.values()]
    return float((sum(squares) / len(squares) / leader.square().sum().clamp_min(TINY).item()) ** 0.5)
