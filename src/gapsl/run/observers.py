"""Who is told about a run as it goes on: progress displays, TensorBoard, a user's own code."""

from __future__ import annotations

from dataclasses import dataclass

from gapsl.run.records import RoundRecord, RunResult


@dataclass(frozen=True)
class Started:
    """What is known when a run starts or goes on."""

    method: str
    seed: int
    devices: int
    first_round: int
    total_rounds: int
    rounds_per_epoch: int


class Observer:
    """Override what you want to hear about; nothing an observer does can change the training."""

    def started(self, run: Started) -> None:
        """Training is about to begin, or to go on."""

    def round(self, record: RoundRecord) -> None:
        """A round is done; the record is the line that goes to records.jsonl."""

    def evaluating(self, done: int, devices: int) -> None:
        """So many of the devices are evaluated."""

    def finished(self, result: RunResult) -> None:
        """The run is done; the result is what goes to result.json."""

    def warned(self, message: str) -> None:
        """Something happened that a person should know of."""

    def closed(self) -> None:
        """The run ends here, finished or not."""
