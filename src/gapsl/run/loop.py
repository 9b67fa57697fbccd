"""The one loop: collect, step, deliver, record; evaluate and checkpoint when due."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

import torch
from torch import Tensor

from gapsl.common.errors import InputError, TrainingStopped
from gapsl.common.streams import random_subset
from gapsl.data.partition import Partition
from gapsl.device.exchange import Exchange, Outcome, Upload
from gapsl.fleets.base import Fleet, Rewind, Split, Stopped, Unmeasured
from gapsl.methods.base import Strategy
from gapsl.models.half import digest
from gapsl.run.checkpoint import Checkpoint, Checkpoints, round_of, way_out
from gapsl.run.config import Config
from gapsl.run.convergence import converged_epoch
from gapsl.run.evaluation import evaluate
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer, Started
from gapsl.run.records import (
    Evaluation,
    FinalEvaluation,
    RoundRecord,
    RunResult,
    angles_of,
    finite,
    finite_or_none,
)

PATIENCE = 10  # rounds running that a device may be non-finite before training stops
IN_VAIN = 3  # times that nobody is there to be evaluated after the same round before training stops
WHOLE_MATRIX = 20  # up to so many devices every round's record has all pairwise angles


@dataclass
class Training:
    """A run in progress: who trains, how far it is, and where its files go."""

    config: Config
    strategy: Strategy
    fleet: Fleet
    total_rounds: int
    rounds_per_epoch: int
    labels: Mapping[Split, Tensor]  # of the evaluation sets
    proportions: Tensor  # (S, C), the devices' own label proportions
    partition: Partition  # who has which samples
    identity: str  # what makes this run this run: its settings and its data
    custom: Mapping[str, str] = field(default_factory=dict)  # what the caller brought, by setting
    folder: RunFolder | None = None
    checkpoints: Checkpoints | None = None
    observers: Sequence[Observer] = ()
    stop: Callable[[], bool] = lambda: False  # asked after every round

    round: int = 0  # the last one done
    history: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0  # of training, earlier processes included
    failing: dict[int, int] = field(default_factory=dict)  # rounds running that a device was non-finite
    stored: int = 0  # the round of the newest checkpoint

    @property
    def device_count(self) -> int:
        """The devices of the run as configured; the baseline `central` has them in one pool."""
        return len(self.proportions)

    def keep_in(self, folder: RunFolder) -> None:
        """Write this run's files to a folder from now on."""
        self.folder = folder
        self.checkpoints = Checkpoints(
            folder.checkpoints, run=self.identity, keep=self.config.keep_checkpoints
        )
        self.checkpoints.tidy()
        if not folder.partition_file.exists() and self.partition.samples:
            self.partition.save(folder.partition_file)

    def resume(self, checkpoint: Checkpoint | None) -> None:
        """Go back to a checkpoint, or to the start if there is none."""
        if checkpoint is not None:
            if self.folder is not None:
                self.folder.check_records(checkpoint.round)
            for name, half in self.strategy.halves().items():
                checkpoint.load_half(name, half)
            state = checkpoint.state
            try:
                self.fleet.load(checkpoint.folder, checkpoint.round)
                self.strategy.load_state(state["strategy"])
                self.fleet.traffic.sent = {int(d): n for d, n in state["sent"].items()}
                self.fleet.traffic.received = {int(d): n for d, n in state["received"].items()}
                self.failing = {int(d): n for d, n in state["failing"].items()}
                self.seconds = float(state["seconds"])
            except (KeyError, TypeError, AttributeError, RuntimeError) as error:
                raise InputError(
                    f"checkpoint {checkpoint.folder} does not fit this run: {error}; "
                    f"{way_out(checkpoint.folder)}"
                ) from None
            self.round = self.stored = checkpoint.round
        if self.folder is not None:
            kept = self.folder.forget_after(self.round)
            self.history = [record.evaluation for record in kept if record.evaluation is not None]

    def run(self) -> RunResult | None:
        """Train to the end and return the result; None if it was asked to stop before."""
        started = Started(
            self.config.method,
            self.config.seed,
            self.device_count,
            self.round + 1,
            self.total_rounds,
            self.rounds_per_epoch,
        )
        for observer in self.observers:
            observer.started(started)
        unmeasured: list[int] = []
        try:
            while True:
                try:
                    return self._to_the_end()
                except Rewind as rewind:
                    if self.stop():  # what is done is in the checkpoint to go back to
                        return None
                    if isinstance(rewind, Unmeasured):
                        unmeasured.append(self.round)
                        self._refuse_in_vain(unmeasured)
                    self.go_back(str(rewind))
        except Stopped:
            return None
        finally:
            for observer in self.observers:
                observer.closed()

    def _refuse_in_vain(self, unmeasured: Sequence[int]) -> None:
        """End a run that goes back again and again because no device is there to be evaluated."""
        if unmeasured.count(self.round) == IN_VAIN:
            raise InputError(
                f"{IN_VAIN} times no device could be evaluated after round {self.round}; if a batch takes "
                "them longer than the deadline gives, give more: --closing deadline:SECONDS"
            )

    def _to_the_end(self) -> RunResult | None:
        while self.round < self.total_rounds:
            self.one_round(self.round + 1)
            if self.stop() and self.round < self.total_rounds:
                self._checkpoint()
                return None
        return self._finish()

    def go_back(self, why: str) -> None:
        """Go back to the newest checkpoint that every device has, too."""
        while True:
            found = self.checkpoints.found() if self.checkpoints is not None else []
            stored = {round_of(path): path for path in found}
            common = self.fleet.newest_common_checkpoint(stored)
            if common is None or self.checkpoints is None:
                raise InputError(
                    f"{why}, and the server has no checkpoint that all devices have, too; start a new run"
                )
            recorded = self.folder.records() if self.folder is not None else ()
            reached = max(self.round, *stored, *(record.round for record in recorded))
            if reached > common or self.round != common:
                back = f"going back from round {reached} to" if reached > common else "from"
                for observer in self.observers:
                    observer.warned(f"{why}: {back} the checkpoint of round {common}")
            try:
                checkpoint = self.checkpoints.read(stored[common])
                self.checkpoints.forget_after(common)  # before the records: none is newer than they are
                self.resume(checkpoint)
                return
            except Rewind as again:
                why = str(again)

    def one_round(self, round: int) -> None:
        """Train one round, with all that is due after it."""
        begun = time.perf_counter()
        before = (dict(self.fleet.traffic.sent), dict(self.fleet.traffic.received))
        evaluates = round % self._evaluate_every == 0 or round == self.total_rounds
        measure = self.config.angles == "all" or (self.config.angles == "auto" and evaluates)
        seconds = {"collect": 0.0, "server": 0.0, "deliver": 0.0, "move": 0.0}
        outcomes = [
            (exchange, self._exchange(round, exchange, measure, seconds))
            for exchange in self.strategy.exchanges(round, self.present(round))
        ]
        weights = self.strategy.averaging(round)
        if weights is not None:
            with timed(seconds, "move"):
                self.fleet.average(weights)
        self.round = round
        self.seconds += time.perf_counter() - begun
        record = self._record(round, outcomes, before, seconds, averaged=weights is not None)
        hopeless = self._watch(round, [outcome for _, outcome in outcomes])
        if hopeless is not None:
            if self.folder is not None:
                self.folder.append(record)
            raise hopeless
        if evaluates:
            with timed(seconds, "evaluate"):
                evaluation = self._evaluate(round, "validation" if self._validates else "test")
            record = replace(record, evaluation=evaluation)
            self.history.append(evaluation)
        record = replace(record, events=self.fleet.drain_events())
        if self.folder is not None:
            self.folder.append(record)
        for observer in self.observers:
            observer.round(record)
        if round % self.config.checkpoint_every == 0 or round == self.total_rounds:
            self._checkpoint()

    def _exchange(self, round: int, exchange: Exchange, measure: bool, seconds: dict[str, float]) -> Outcome:
        if exchange.hand_over is not None:
            with timed(seconds, "move"):
                self.fleet.hand_over(*exchange.hand_over)
        begun, waited = time.perf_counter(), seconds["collect"]
        uploads = clocked(self.fleet.collect(round, exchange), seconds)
        outcome = self.strategy.step(round, exchange, uploads, measure=measure)
        seconds["server"] += time.perf_counter() - begun - (seconds["collect"] - waited)
        with timed(seconds, "deliver"):
            self.fleet.deliver(round, outcome.replies)
        return outcome

    def present(self, round: int) -> tuple[int, ...]:
        """Return the devices that take part in a round."""
        devices = sorted(self.fleet.devices)
        count = participants(len(devices), self.config.participation)
        if count == len(devices):
            return tuple(devices)
        drawn = random_subset(len(devices), count, self.config.seed, "participation", round=round)
        return tuple(devices[i] for i in drawn)

    @property
    def _evaluate_every(self) -> int:
        return self.config.evaluate_every or self.rounds_per_epoch

    @property
    def _validates(self) -> bool:
        return "validation" in self.labels

    def _watch(self, round: int, outcomes: Sequence[Outcome]) -> TrainingStopped | None:
        """Warn of devices whose numbers are not finite; return why to stop where it is hopeless."""
        gone = self.fleet.dropped()  # who has left has no loss, and is not ill
        skipped = sorted({device for outcome in outcomes for device in outcome.skipped if device not in gone})
        # A device with several turns in a round fails only if all of them do.
        trained = {device for outcome in outcomes for device in outcome.losses.keys() - outcome.skipped}
        for device in trained:
            self.failing.pop(device, None)
        for device in skipped:
            if device not in trained:
                self.failing[device] = self.failing.get(device, 0) + 1
            message = f"round {round}: device {device} skipped, its loss or gradient is not finite"
            for observer in self.observers:
                observer.warned(message)
        lasting = [device for device, rounds in self.failing.items() if rounds >= PATIENCE]
        if lasting or (skipped and not trained):
            found = self.checkpoints.found() if self.checkpoints is not None else []
            last = str(found[-1]) if found else "none"
            who = (
                f"device {lasting[0]} has had no finite loss or gradient for {PATIENCE} rounds"
                if lasting
                else f"no device has a finite loss and gradient (devices {', '.join(map(str, skipped))})"
            )
            return TrainingStopped(
                f"training stopped in round {round}: {who}; last checkpoint: {last}. "
                "A smaller learning rate, clipping (server_optimizer.clip) or cleaner inputs may help"
            )
        return None

    def _record(
        self,
        round: int,
        outcomes: Sequence[tuple[Exchange, Outcome]],
        before: tuple[dict[int, int], dict[int, int]],
        seconds: dict[str, float],
        *,
        averaged: bool,
    ) -> RoundRecord:
        losses: dict[int, list[float]] = {}
        for _, outcome in outcomes:
            for device, loss in outcome.losses.items():
                losses.setdefault(device, []).append(loss)
        every = [loss for found in losses.values() for loss in found]
        last = outcomes[-1][1]
        traffic = self.fleet.traffic
        angles, mean = None, None
        if last.angles is not None and len(last.angles) > 1:
            upper = last.angles[torch.ones_like(last.angles).triu(diagonal=1).bool()]
            mean = finite_or_none(float(upper.mean()))
            if len(last.angles) <= WHOLE_MATRIX or round % self._evaluate_every == 0:
                angles = angles_of(sorted(last.losses), last.angles)
        return RoundRecord(
            round=round,
            epoch=round / self.rounds_per_epoch,
            loss=finite_or_none(sum(every) / len(every)) if every else None,
            losses=finite({device: sum(found) / len(found) for device, found in losses.items()}),
            norms=finite(norms_of([outcome for _, outcome in outcomes])),
            skipped=tuple(sorted({device for _, outcome in outcomes for device in outcome.skipped})),
            averaged=averaged,
            bytes_sent={d: n - before[0].get(d, 0) for d, n in sorted(traffic.sent.items())},
            bytes_received={d: n - before[1].get(d, 0) for d, n in sorted(traffic.received.items())},
            seconds=seconds,
            angle_mean=mean,
            angles=angles,
            selection=last.selection,
            probes=last.probes,
            details=last.details,
        )

    def _measured(self, devices: int) -> None:
        """Tell how many devices are evaluated, which may take longer than the rounds before."""
        for observer in self.observers:
            observer.evaluating(devices, len(self.fleet.devices))

    def _evaluate(self, round: int, split: Split) -> Evaluation:
        measures = evaluate(
            self.fleet,
            self.strategy.server_model(),
            split,
            self.labels[split][: None if round == self.total_rounds else self.config.curve_samples],
            self.proportions,
            shared=self.strategy.shared_half(),
            measured=self._measured,
        )
        traffic = self.fleet.traffic
        return Evaluation(
            round=round,
            epoch=round / self.rounds_per_epoch,
            split=split,
            **measures.over_devices(),
            **asdict(measures),
            drift=finite(self.fleet.drifts()),
            bytes_sent=dict(sorted(traffic.sent.items())),
            bytes_received=dict(sorted(traffic.received.items())),
            seconds=self.seconds,
        )

    def _checkpoint(self) -> None:
        if self.stored != self.round:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Store the state after the last round."""
        if self.checkpoints is None or self.folder is None:
            return
        self.folder.sync_records()
        traffic = self.fleet.traffic
        state = {
            "strategy": self.strategy.state(),
            "sent": traffic.sent,
            "received": traffic.received,
            "failing": self.failing,
            "seconds": self.seconds,
        }
        self.checkpoints.write(self.round, self.strategy.halves(), self.fleet, state)
        self.stored = self.round
        self.fleet.checkpoint_written(self.round)

    def _finish(self) -> RunResult:
        # With a validation split the test set is read here, once.
        last = self._evaluate(self.round, "test") if self._validates else self.history[-1]
        digests = self.fleet.digests()
        final = FinalEvaluation(
            **{one.name: getattr(last, one.name) for one in fields(last)},
            weights_sha256=self._weights_sha256(digests),
            converged_epoch=converged_epoch([(one.epoch, one.device_mean) for one in self.history]),
            validation=self.history[-1] if self._validates else None,
            unheard=tuple(sorted(self.fleet.devices.keys() - digests.keys())),
        )
        settings = self.config.resolved()
        result = RunResult(
            method=str(settings["method"]),
            label=self.config.label or None,
            seed=self.config.seed,
            rounds=self.total_rounds,
            rounds_per_epoch=self.rounds_per_epoch,
            config={**settings, **({"custom": dict(self.custom)} if self.custom else {})},
            final=final,
            history=tuple(self.history),
        )
        if self.folder is not None:
            self.folder.write_result(result)
        for observer in self.observers:
            observer.finished(result)
        return result

    def _weights_sha256(self, digests: Mapping[int, str]) -> str:
        sha = hashlib.sha256()
        for name, half in self.strategy.halves().items():
            sha.update(f"{name}={digest(half.model)};".encode())
        for device, found in sorted(digests.items()):
            sha.update(f"device-{device:04d}={found};".encode())
        return sha.hexdigest()


def participants(devices: int, fraction: float) -> int:
    """Return how many devices a fraction of them is: at least one."""
    return max(1, math.floor(devices * fraction + 0.5))


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


class timed:  # noqa: N801 - reads as a word where it is used
    """Add the time spent inside the block to one entry of a dictionary."""

    def __init__(self, seconds: dict[str, float], phase: str) -> None:
        self._seconds, self._phase = seconds, phase

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self._begun
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + spent
