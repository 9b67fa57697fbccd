"""What a run says of itself: records to its folder, news to its observers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gapsl.common.clock import timed
from gapsl.device.exchange import Outcome, Selection, Upload
from gapsl.fleets.base import FleetEvents, Traffic
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer
from gapsl.run.records import (
    Angles,
    Evaluation,
    RoundRecord,
    RunResult,
    finite,
    finite_or_none,
)

log = logging.getLogger("gapsl")

WHOLE = 20  # up to so many devices every round's record has all pairwise angles, and seconds by device
MOST = 200  # up to so many an evaluation's has: a thousand devices' would be 4 MB
MANY = 100  # of more devices than these, numbers have six digits in the records


class Recorder:
    """Writes a run's records and result, if it has a folder, and tells its observers."""

    def __init__(self, folder: RunFolder | None, observers: Sequence[Observer]) -> None:
        self._folder = folder
        self._observers = list(observers)

    def tell(self, hook: str, *values: Any) -> None:
        """Call a method of every observer; one that fails is told no more, and the run goes on."""
        for observer in tuple(self._observers):
            try:
                getattr(observer, hook)(*values)
            except Exception as error:
                self._observers = [other for other in self._observers if other is not observer]
                name = getattr(observer, "known_as", "") or type(observer).__name__
                text = f"the observer {name} failed, and is told no more: {type(error).__name__}: {error}"
                log.warning(text, exc_info=error)

    def warn(self, message: str) -> None:
        """Something happened that a person should know of."""
        self.tell("warned", message)

    def write(self, record: RoundRecord) -> None:
        """Write a round's record, and tell nobody."""
        if self._folder is not None:
            self._folder.append(record)

    def round(self, record: RoundRecord) -> None:
        """A round is done."""
        self.write(record)
        self.tell("round", record)

    def finished(self, result: RunResult) -> None:
        """The run is done."""
        if self._folder is not None:
            self._folder.write_result(result)
        self.tell("finished", result)

    # --- what recovery needs of the records

    def sync(self) -> None:
        """Make the records survive a power cut, so that no checkpoint is newer than they are."""
        if self._folder is not None:
            self._folder.sync_records()

    def check(self, round: int) -> None:
        """Refuse records that lack one of the first rounds, which a checkpoint is to be gone on from."""
        if self._folder is not None:
            self._folder.check_records(round)

    def last_round(self) -> int:
        """Return the last round that is recorded."""
        return max((record.round for record in self._folder.records()), default=0) if self._folder else 0

    def forget_after(self, round: int) -> list[Evaluation]:
        """Drop the records of rounds that will be trained again; returns the evaluations before them."""
        kept = self._folder.forget_after(round) if self._folder is not None else []
        return [record.evaluation for record in kept if record.evaluation is not None]


def round_record(
    round: int,
    epoch: float,
    outcomes: Sequence[Outcome],
    traffic: Traffic,
    *,
    seconds: Mapping[str, float],
    device_seconds: Mapping[int, Mapping[str, float]],
    averaged: bool,
    whole: bool,
    evaluation: Evaluation | None = None,
    events: FleetEvents | None = None,
) -> RoundRecord:
    """Return the record of a round from the outcomes of its exchanges and its own traffic.

    `whole` asks for what many devices' records leave out: all pairs' angles, and seconds by device.
    """
    losses: dict[int, list[float]] = {}
    for outcome in outcomes:
        for device, loss in outcome.losses.items():
            losses.setdefault(device, []).append(loss)
    reasons = {device: why for outcome in outcomes for device, why in outcome.skipped.items()}
    every = [loss for found in losses.values() for loss in found]
    last = outcomes[-1]
    mean, angles = measured_angles(sorted(last.losses), last.angles, whole=whole)
    return RoundRecord(
        round=round,
        epoch=epoch,
        loss=finite_or_none(sum(every) / len(every)) if every else None,
        losses=brief(finite({device: sum(found) / len(found) for device, found in losses.items()})),
        norms=brief(finite(norms_of(outcomes))),
        skipped=tuple(sorted(reasons)),
        reasons=dict(sorted(reasons.items())),
        averaged=averaged,
        bytes_sent=dict(sorted(traffic.sent.items())),
        bytes_received=dict(sorted(traffic.received.items())),
        seconds=seconds,
        device_seconds=by_phase(device_seconds) if whole or len(device_seconds) <= WHOLE else {},
        angle_mean=mean,
        angles=angles,
        selection=None if last.selection is None else brief_selection(last.selection),
        probes=last.probes,
        events=events or FleetEvents(),
        evaluation=evaluation,
        details=last.details,
    )


def measured_angles(
    devices: Sequence[int], angles: Tensor | None, *, whole: bool
) -> tuple[float | None, Angles | None]:
    """Return the mean over all pairs, and the pairs unless they are too many."""
    if angles is None or len(angles) < 2:
        return None, None
    upper = angles[torch.ones_like(angles).triu(diagonal=1).bool()]
    pairs = angles_of(devices, angles) if len(angles) <= (MOST if whole else WHOLE) else None
    return finite_or_none(float(upper.mean())), pairs


def angles_of(devices: Sequence[int], angles: Tensor) -> Angles:
    """Return a matrix of angles as a record has it: a hundredth of a degree is enough."""
    rows = [tuple(float(f"{angle:.4f}") for angle in row[i + 1 :]) for i, row in enumerate(angles.tolist())]
    return Angles(devices=tuple(devices), above=tuple(rows))


def brief(values: Mapping[int, float]) -> Mapping[int, float]:
    """Return numbers by device, with six digits if there are many."""
    if len(values) <= MANY:
        return values
    return {device: float(f"{value:.6g}") for device, value in values.items()}


def by_phase(spent: Mapping[int, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """Return devices' seconds by phase and then by device; three digits of each are enough."""
    found: dict[str, dict[int, float]] = {}
    for device, own in sorted(spent.items()):
        for phase, seconds in own.items():
            found.setdefault(phase, {})[device] = float(f"{max(0.0, seconds):.3g}")
    return found


def brief_selection(found: Selection) -> Selection:
    """Return a choice whose numbers by device are brief."""
    return replace(
        found,
        scores=brief(found.scores),
        lead_angles=brief(found.lead_angles),
        penalty=brief(found.penalty),
    )


def norms_of(outcomes: Sequence[Outcome]) -> dict[int, float]:
    """Return the length of the gradient each device trains on, by device; of several turns the last."""
    return {
        device: float(reply.gradient.norm())
        for outcome in outcomes
        for device, reply in sorted(outcome.replies.items())
        if reply.step
    }


def clocked(uploads: Iterable[Upload], seconds: dict[str, float]) -> Iterator[Upload]:
    """Pass uploads on, counting the time spent waiting for them."""
    iterator = iter(uploads)
    while True:
        with timed(seconds, "collect"):
            upload = next(iterator, None)
        if upload is None:
            return
        yield upload
