"""TensorBoard events of a run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.run.observers import Observer
from gapsl.run.records import RoundRecord

MEASURES = (
    "device_mean",
    "device_std",
    "device_min",
    "device_max",
    "ensemble",
    "merged",
    "local",
    "test_loss",
)


class TensorBoard(Observer):
    """Writes loss, angles, leader and measures as scalars."""

    def __init__(self, folder: Path) -> None:
        self.check()
        from torch.utils.tensorboard import SummaryWriter  # an extra: imported only where it is asked for

        self._writer = SummaryWriter(str(folder))

    @staticmethod
    def check() -> None:
        """Refuse before anything is trained if TensorBoard is not installed."""
        if importlib.util.find_spec("tensorboard") is None:
            raise InputError('TensorBoard is not installed; pip install "gapsl[tensorboard]"')

    def round(self, record: RoundRecord) -> None:
        """Write a round's numbers."""
        numbers = {
            "train/loss": record.loss,
            "gradients/mean_angle": record.angle_mean,
        }
        if (chosen := record.selection) is not None:
            numbers |= {"gapsl/ratio": chosen.ratio, "gapsl/threshold": chosen.threshold}
            numbers |= {"gapsl/kept": len(chosen.kept), "gapsl/leader": len(chosen.leader)}
        numbers |= {f"accuracy/{name}": getattr(record.evaluation, name, None) for name in MEASURES}
        for name, value in numbers.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.round)

    def closed(self) -> None:
        """Flush what is written."""
        self._writer.close()
