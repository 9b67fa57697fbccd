"""TensorBoard as a tracker, and the numbers of a round that trackers get."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.run.observers import Observer
from gapsl.run.records import MEASURES, Evaluation, RoundRecord


def scalars(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of a round that have no device, by the names that trackers show."""
    numbers = {"train/loss": record.loss, "gradients/mean_angle": record.angle_mean}
    if (chosen := record.selection) is not None:
        numbers |= {"gapsl/ratio": chosen.ratio, "gapsl/threshold": chosen.threshold}
        numbers |= {"gapsl/kept": len(chosen.kept), "gapsl/leader": len(chosen.leader)}
    numbers |= {"bytes/sent": sum(record.bytes_sent.values())}
    numbers |= {"bytes/received": sum(record.bytes_received.values())}
    numbers |= {"seconds/round": sum(record.seconds.values())}
    found = {name: value for name, value in numbers.items() if value is not None}
    return found | (measures(record.evaluation, "accuracy") if record.evaluation is not None else {})


def measures(evaluation: Evaluation, group: str) -> dict[str, float]:
    """Return what an evaluation measured over all devices, each name under a group's."""
    found = {f"{group}/{name}": getattr(evaluation, name) for name in MEASURES}
    return {name: value for name, value in found.items() if value is not None}


class TensorBoard(Observer):
    """Writes the numbers of every round as scalars, if the run has a folder."""

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
        if self._writer is None:
            return
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record.round)

    def closed(self) -> None:
        if self._writer is not None:
            self._writer.close()
