"""Who is told about a run as it goes on: progress displays, TensorBoard, a user's own code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    identity: str = ""  # the same for runs with the same settings and data
    settings: Mapping[str, Any] = field(default_factory=dict)  # all of them, as config.yaml has them


class Observer:
    """Override what you want to hear about; nothing an observer does can change the training.

    One that the setting `observers` names is made with the run's folder, None where the run keeps no files.
    """

    known_as = ""  # under which the setting `observers` knows it

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    @classmethod
    def check(cls) -> None:
        """Raise an InputError, before anything is trained, if this machine lacks what it needs."""

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

    def failed(self, error: BaseException) -> None:
        """The run ends with an error."""

    def closed(self) -> None:
        """The run ends here, finished or not; nothing is told after this."""
