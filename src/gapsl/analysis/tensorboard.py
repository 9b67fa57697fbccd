"""TensorBoard events of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapsl.common.errors import InputError
from gapsl.run.observers import Observer

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

    def round(self, record: Mapping[str, Any]) -> None:
        """Write a round's numbers."""
        numbers = {
            "train/loss": record.get("loss"),
            "gradients/mean_angle": record.get("angle_mean"),
            "gapsl/ratio": record.get("ratio"),
            "gapsl/threshold": record.get("threshold"),
            "gapsl/kept": len(record["kept"]) if "kept" in record else None,
            "gapsl/leader": len(record["leader"]) if "leader" in record else None,
        }
        evaluation = record.get("evaluation") or {}
        numbers.update({f"accuracy/{name}": evaluation.get(name) for name in MEASURES})
        for name, value in numbers.items():
            if value is not None:
                self._writer.add_scalar(name, value, record["round"])

    def closed(self) -> None:
        """Flush what is written."""
        self._writer.close()
