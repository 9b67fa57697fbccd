"""How a run survives: what it stores after its rounds, and how it goes back to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gapsl.common.errors import InputError, Rewind, Unavailable
from gapsl.fleets.base import Beside, Fleet, OwnCheckpoints
from gapsl.methods.base import Strategy
from gapsl.run.checkpoint import Checkpoint, Checkpoints, way_out
from gapsl.run.health import Health
from gapsl.run.recorder import Recorder
from gapsl.run.records import Evaluation


@dataclass
class RunState:
    """How far a run is: what a checkpoint and the records restore besides models."""

    round: int = 0  # the last one done
    seconds: float = 0.0  # of training, earlier processes included
    health: Health = field(default_factory=Health)
    history: list[Evaluation] = field(default_factory=list)


class Recovery:
    """Stores a run's state, and brings the server and its devices back to one that all have."""

    def __init__(
        self,
        strategy: Strategy,
        fleet: Fleet,
        state: RunState,
        recorder: Recorder,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._strategy, self._fleet, self._state, self._recorder = strategy, fleet, state, recorder
        self._checkpoints = checkpoints  # None: the run has no files, and is not stored
        self._stored = 0  # the round of the newest checkpoint
        self._apart = fleet if isinstance(fleet, OwnCheckpoints) else None
        self._rewinds = self._apart is not None or isinstance(fleet, Beside)
        if checkpoints is not None:
            checkpoints.tidy()
            checkpoints.keep_start = self._apart is not None  # which any device can go back to

    @property
    def newest(self) -> str:
        """The newest checkpoint's folder, for messages."""
        found = self._checkpoints.found() if self._checkpoints is not None else {}
        return str(found[max(found)]) if found else "none"

    def store(self) -> None:
        """Store the state after the last round, unless that is done."""
        if self._stored != self._state.round:
            self._write()

    def resume(self) -> None:
        """Go on from what is stored, or from the start if there is nothing."""
        if self._checkpoints is None:
            return
        if self._rewinds and not self._checkpoints.found():
            self._write()
        if self._apart is None:
            self._restore(self._checkpoints.latest())
        else:
            self.go_back("the run goes on")

    def go_back(self, why: str) -> None:
        """Go back to the newest checkpoint that every device has, too."""
        while True:
            stored = self._checkpoints.found() if self._checkpoints is not None else {}
            common = self._common(stored)
            if self._checkpoints is None:
                raise Unavailable(f"{why}, and the run has no folder with checkpoints to go back to: out=...")
            if common is None:
                raise InputError(
                    f"{why}, and the server has no checkpoint that all devices have, too; start a new run"
                )
            reached = max(self._state.round, *stored, self._recorder.last_round())
            if reached > common or self._state.round != common:
                back = f"rolling back from round {reached} to" if reached > common else "from"
                self._recorder.warn(f"{why}: {back} the checkpoint of round {common}")
            try:
                checkpoint = self._checkpoints.read(common)
                self._checkpoints.forget_after(common)  # before the records: none is newer than they are
                self._restore(checkpoint)
                return
            except Rewind as again:
                why = str(again)

    def _common(self, rounds: Mapping[int, Any]) -> int | None:
        if self._apart is not None:
            return self._apart.newest_common_checkpoint(rounds)
        return max(rounds, default=None)  # a checkpoint has all devices in it

    def _write(self) -> None:
        if self._checkpoints is None:
            return
        self._recorder.sync()
        traffic, state = self._fleet.traffic, self._state
        content = {
            "strategy": self._strategy.state(),
            "sent": traffic.sent,
            "received": traffic.received,
            "failing": state.health.failing,
            "mostly": state.health.mostly,
            "seconds": state.seconds,
        }
        self._checkpoints.write(state.round, self._strategy.parts(), self._fleet, content)
        self._stored = state.round
        if self._apart is not None:
            self._apart.checkpoint_written(state.round)

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        """Go back to a checkpoint, or to the start if there is none; records after it are forgotten."""
        if checkpoint is not None:
            self._recorder.check(checkpoint.round)
            for name, part in self._strategy.parts().items():
                checkpoint.load_part(name, part)
            try:
                content = checkpoint.state
                self._fleet.load(checkpoint.folder, checkpoint.round)
                self._strategy.load_state(content["strategy"])
                sent, received, failing = (
                    {int(device): int(count) for device, count in content[name].items()}
                    for name in ("sent", "received", "failing")
                )
                seconds, mostly = float(content["seconds"]), int(content.get("mostly", 0))
            except (KeyError, RuntimeError) as error:  # a name is missing, a tensor has another shape
                raise InputError(
                    f"checkpoint {checkpoint.folder} does not fit this run: {error}; "
                    f"{way_out(checkpoint.folder)}"
                ) from None
            self._fleet.traffic.sent, self._fleet.traffic.received = sent, received
            self._state.health, self._state.seconds = Health(failing, mostly), seconds
            self._state.round = self._stored = checkpoint.round
        self._fleet.clock.take()  # what forgotten rounds took
        self._state.history = self._recorder.forget_after(self._state.round)
