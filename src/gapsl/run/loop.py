"""The one loop: collect, step, deliver, record; evaluate and checkpoint when due."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from torch import Tensor

from gapsl.common.clock import timed
from gapsl.common.errors import Rewind, Stopped, TrainingStopped
from gapsl.common.streams import random_subset
from gapsl.device.exchange import Exchange, Outcome
from gapsl.fleets.base import Beside, DropOuts, Fleet, Split, Traffic, Unmeasured
from gapsl.methods.base import Strategy
from gapsl.models.part import digest
from gapsl.run.checkpoint import Checkpoints
from gapsl.run.config import Config, stretched
from gapsl.run.evaluation import converged_epoch, evaluate
from gapsl.run.folder import RunFolder
from gapsl.run.health import Hopeless, refuse_in_vain
from gapsl.run.observers import Observer, Started
from gapsl.run.recorder import Recorder, clocked, round_record
from gapsl.run.records import Evaluation, FinalEvaluation, RunResult, finite
from gapsl.run.recovery import Recovery, RunState


@dataclass(frozen=True)
class Plan:
    """What a run is before its first round."""

    config: Config
    total_rounds: int
    rounds_per_epoch: int
    labels: Mapping[Split, Tensor]  # of the evaluation sets
    proportions: Tensor  # (S, C), the devices' own label proportions
    identity: str  # what makes this run this run: its settings and its data
    custom: Mapping[str, str] = field(default_factory=dict)  # what the caller brought, by setting
    classes: tuple[str, ...] = ()
    notice: str | None = None  # what a person should know before it begins

    @property
    def split(self) -> Split:
        """The set that rounds are evaluated on."""
        return "validation" if "validation" in self.labels else "test"

    def evaluation_due(self, round: int) -> bool:
        """Say whether an evaluation is due after a round; after the last there is one in any case."""
        return round % (self.config.evaluate_every or self.rounds_per_epoch) == 0

    def stores(self, round: int) -> bool:
        """Say whether there is a checkpoint after a round."""
        return round % self.config.checkpoint_every == 0 or round == self.total_rounds


class Training:
    """A run in progress."""

    def __init__(
        self,
        plan: Plan,
        strategy: Strategy,
        fleet: Fleet,
        *,
        folder: RunFolder | None = None,
        observers: Sequence[Observer] = (),
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.plan, self.strategy, self.fleet = plan, strategy, fleet
        self.state = RunState()
        self._stop = stop  # asked after every round
        self._recorder = Recorder(folder, observers)
        keep = plan.config.keep_checkpoints
        stored = None if folder is None else Checkpoints(folder.checkpoints, run=plan.identity, keep=keep)
        self._recovery = Recovery(strategy, fleet, self.state, self._recorder, stored)

    def resume(self) -> Training:
        """Go on from what is stored of this run, or begin."""
        self._recovery.resume()
        return self

    def run(self) -> RunResult | None:
        """Train to the end and return the result; None if it was asked to stop before."""
        plan = self.plan
        # The devices of the run as configured; the baseline `central` has them in one pool.
        self._recorder.tell(
            "started",
            Started(
                plan.config.method,
                plan.config.seed,
                len(plan.proportions),
                self.state.round + 1,
                plan.total_rounds,
                plan.rounds_per_epoch,
                plan.identity,
                plan.config.resolved(plan.custom),
            ),
        )
        if plan.notice is not None:
            self._recorder.warn(plan.notice)
        unmeasured: list[int] = []
        try:
            while True:
                try:
                    return self._to_the_end()
                except Rewind as rewind:
                    if self._stop():  # what is done is in the checkpoint to go back to
                        return None
                    if isinstance(rewind, Unmeasured):
                        unmeasured.append(self.state.round)
                        refuse_in_vain(unmeasured)
                    self._recovery.go_back(str(rewind))
        except Stopped:
            return None
        except BaseException as error:
            self._recorder.tell("failed", error)
            raise
        finally:
            if isinstance(self.fleet, Beside):
                self.fleet.finish()
            self._recorder.tell("closed")

    def _to_the_end(self) -> RunResult | None:
        while self.state.round < self.plan.total_rounds:
            self.one_round(self.state.round + 1)
            if self._stop() and self.state.round < self.plan.total_rounds:
                self._recovery.store()
                return None
        return self._finish()

    def one_round(self, round: int) -> None:
        """Train one round, with all that is due after it."""
        plan, state, begun = self.plan, self.state, time.perf_counter()
        before = Traffic(dict(self.fleet.traffic.sent), dict(self.fleet.traffic.received))
        evaluates = plan.evaluation_due(round) or round == plan.total_rounds
        measure = plan.config.angles == "all" or (plan.config.angles == "auto" and evaluates)
        seconds = {"collect": 0.0, "server": 0.0, "deliver": 0.0, "move": 0.0}
        outcomes: list[Outcome] = []
        for exchange in self.strategy.exchanges(round, self.present(round)):
            outcome = self._exchange(round, exchange, measure, seconds)
            if not exchange.proposes:  # nobody's loss is in that
                outcomes.append(outcome)
        weights = self.strategy.averaging(round)
        if weights is not None:
            with timed(seconds, "move"):
                self.strategy.average(weights)
                self.fleet.average(weights)
        state.round = round
        state.seconds += time.perf_counter() - begun
        traffic, epoch = self.fleet.traffic.since(before), round / plan.rounds_per_epoch
        hopeless = self._watch(round, outcomes)
        evaluation, events = None, None
        if hopeless is None and evaluates:
            with timed(seconds, "evaluate"):
                evaluation = self._evaluate(round, plan.split)
            state.history.append(evaluation)
        if hopeless is None and isinstance(self.fleet, DropOuts):
            events = self.fleet.drain_events()
        record = round_record(
            round,
            epoch,
            outcomes,
            traffic,
            seconds=seconds,
            device_seconds=self.fleet.clock.take(),
            averaged=weights is not None,
            whole=evaluates,
            evaluation=evaluation,
            events=events,
        )
        if hopeless is not None:
            self._recorder.write(record)
            raise hopeless
        self._recorder.round(record)
        if plan.stores(round):
            self._recovery.store()

    def _exchange(self, round: int, exchange: Exchange, measure: bool, seconds: dict[str, float]) -> Outcome:
        if exchange.hand_over is not None:
            with timed(seconds, "move"):
                self.fleet.hand_over(*exchange.hand_over)
        uploads = clocked(self.fleet.collect(round, exchange), seconds)
        with timed(seconds, "server"):  # without what it waits for uploads
            outcome = self.strategy.step(round, exchange, uploads, measure=measure)
        with timed(seconds, "deliver"):
            self.fleet.deliver(round, outcome.replies)
        return outcome

    def present(self, round: int) -> tuple[int, ...]:
        """Return the devices that take part in a round."""
        devices, config = sorted(self.fleet.devices), self.plan.config
        count = participants(len(devices), config.participation)
        if count == len(devices):
            return tuple(devices)
        drawn = random_subset(len(devices), count, config.seed, "participation", round=round)
        return tuple(devices[i] for i in drawn)

    def evaluated(self) -> tuple[int, ...]:
        """Return the devices that are evaluated, the same in all rounds."""
        devices, config = sorted(self.fleet.devices), self.plan.config
        count = min(config.evaluate_devices or len(devices), len(devices))
        if count == len(devices):
            return tuple(devices)
        drawn = random_subset(len(devices), count, config.seed, "evaluated", round=0)
        return tuple(devices[i] for i in drawn)

    def _watch(self, round: int, outcomes: Sequence[Outcome]) -> TrainingStopped | None:
        """Warn of outliers; return why to stop where they are no longer the exception."""
        dropped = self.fleet.dropped() if isinstance(self.fleet, DropOuts) else ()
        try:
            for warning in self.state.health.warnings(outcomes, dropped, len(self.fleet.devices)):
                self._recorder.warn(f"round {round}: {warning}")
        except Hopeless as why:
            return TrainingStopped(
                f"training stopped in round {round}: {why}; last checkpoint: {self._recovery.newest}. "
                "A smaller learning rate, clipping (server_optimizer.clip) or cleaner inputs may help"
            )
        return None

    def _evaluate(self, round: int, split: Split) -> Evaluation:
        plan, traffic = self.plan, self.fleet.traffic
        part = None if round == plan.total_rounds else plan.config.curve_samples
        measures = evaluate(
            self.fleet,
            self.strategy.server_model(),
            split,
            plan.labels[split][:part],
            plan.proportions,
            shared=self.strategy.shared_client_model(),
            devices=self.evaluated(),
            measured=lambda done: self._recorder.tell("evaluating", done, len(self.fleet.devices)),
        )
        if round < plan.total_rounds:
            measures = replace(measures, confusion=())
        return Evaluation(
            round=round,
            epoch=round / plan.rounds_per_epoch,
            split=split,
            **measures.over_devices(),
            **asdict(measures),
            drift=finite(self.fleet.drifts()),
            bytes_sent=dict(sorted(traffic.sent.items())),
            bytes_received=dict(sorted(traffic.received.items())),
            seconds=self.state.seconds,
        )

    def _finish(self) -> RunResult:
        plan = self.plan
        validates = plan.split == "validation"
        # With a validation split the test set is read here, once.
        last = self._evaluate(self.state.round, "test") if validates else self.state.history[-1]
        history = tuple(replace(one, confusion=()) for one in self.state.history)  # it is in `last`
        digests = self.fleet.digests()
        final = FinalEvaluation(
            **{one.name: getattr(last, one.name) for one in fields(last)},
            weights_sha256=weights_sha256(self.strategy, digests),
            converged_epoch=converged_epoch([(one.epoch, one.device_mean) for one in history]),
            validation=history[-1] if validates else None,
            unheard=tuple(sorted(self.fleet.devices.keys() - digests.keys())),
        )
        settings = plan.config.resolved(plan.custom)
        result = RunResult(
            method=str(settings["method"]),
            label=plan.config.label or None,
            seed=plan.config.seed,
            rounds=plan.total_rounds,
            rounds_per_epoch=plan.rounds_per_epoch,
            classes=plan.classes,
            config=settings,
            extended=plan.config.extended_to is not None and stretched(plan.config) is not None,
            final=final,
            history=history,
        )
        self._recorder.finished(result)
        return result


def weights_sha256(strategy: Strategy, digests: Mapping[int, str]) -> str:
    """Return the SHA-256 over all models of a run: the server's, and the devices' by their own digests."""
    sha = hashlib.sha256()
    for name, part in strategy.parts().items():
        sha.update(f"{name}={digest(part.model)};".encode())
    for device, found in sorted(digests.items()):
        sha.update(f"device-{device:04d}={found};".encode())
    return sha.hexdigest()


def participants(devices: int, fraction: float) -> int:
    """Return how many devices a fraction of them is: at least one."""
    return max(1, math.floor(devices * fraction + 0.5))
