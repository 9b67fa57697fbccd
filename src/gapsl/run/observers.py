"""Who is told about a run as it goes on: progress displays, TensorBoard, a user's own code."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapsl.common.errors import GapslError, InputError
from gapsl.common.registry import Registry
from gapsl.run.records import RoundRecord, RunResult

log = logging.getLogger("gapsl")

MEASURES = (
    *("device_mean", "device_std", "device_min", "device_max"),
    *("ensemble", "merged", "local", "test_loss"),
)


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
    """Override what you want to hear about; nothing an observer does can change the training.

    One that the setting `observers` names is made with the run's folder, None where the run keeps no files.
    """

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

    def closed(self) -> None:
        """The run ends here, finished or not."""


OBSERVERS: Registry[type[Observer]] = Registry("observer", group="gapsl.observers", base=Observer)


def register_observer(name: str, observer: type[Observer]) -> type[Observer]:
    """Make an observer known by name, for the setting `observers`."""
    return OBSERVERS.register(name, observer)


def check_observers(names: Iterable[str]) -> None:
    """Refuse names that nobody knows, and observers that cannot work here."""
    for name in names:
        OBSERVERS[name].check()


def make_observers(names: Iterable[str], folder: Path | None) -> list[Observer]:
    """Return the observers with these names, for a run with this folder."""
    found: list[Observer] = []
    for name in names:
        try:
            found.append(Guarded(name, OBSERVERS[name](folder)))
        except GapslError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(
                f"the observer {name} cannot begin ({reason}); leave it out, or mend it"
            ) from error
    return found


class Guarded(Observer):
    """An observer by its name: if it fails, it is told no more, and the run goes on."""

    def __init__(self, name: str, observer: Observer) -> None:
        self._name, self._observer = name, observer
        self._failed = False

    def _tell(self, hook: str, *values: Any) -> None:
        if self._failed:
            return
        try:
            getattr(self._observer, hook)(*values)
        except Exception as error:
            self._failed = True
            text = f"the observer {self._name} failed, and is told no more: {type(error).__name__}: {error}"
            log.warning(text, exc_info=error)

    def started(self, run: Started) -> None:
        self._tell("started", run)

    def round(self, record: RoundRecord) -> None:
        self._tell("round", record)

    def evaluating(self, done: int, devices: int) -> None:
        self._tell("evaluating", done, devices)

    def finished(self, result: RunResult) -> None:
        self._tell("finished", result)

    def warned(self, message: str) -> None:
        self._tell("warned", message)

    def closed(self) -> None:
        self._tell("closed")


class TensorBoard(Observer):
    """Writes loss, angles, leader and measures as scalars, if the run has a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.check()
        from torch.utils.tensorboard import SummaryWriter  # an extra: imported only where it is asked for

        self._writer = None if folder is None else SummaryWriter(str(folder / "tensorboard"))

    @classmethod
    def check(cls) -> None:
        """Refuse before anything is trained if TensorBoard is not installed."""
        if importlib.util.find_spec("tensorboard") is None:
            raise InputError('TensorBoard is not installed; pip install "gapsl[tensorboard]"')

    def round(self, record: RoundRecord) -> None:
        """Write a round's numbers."""
        if self._writer is None:
            return
        numbers = {"train/loss": record.loss, "gradients/mean_angle": record.angle_mean}
        if (chosen := record.selection) is not None:
            numbers |= {"gapsl/ratio": chosen.ratio, "gapsl/threshold": chosen.threshold}
            numbers |= {"gapsl/kept": len(chosen.kept), "gapsl/leader": len(chosen.leader)}
        numbers |= {
            f"accuracy/{name}": getattr(record.evaluation, name, None) for name in (*MEASURES, "test_loss")
        }
        for name, value in numbers.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.round)

    def closed(self) -> None:
        """Flush what is written."""
        if self._writer is not None:
            self._writer.close()


register_observer("tensorboard", TensorBoard)
