"""A run as a diagnosis sees it: settings, records, the method's traits, and the devices' labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gapsl.analysis.diagnose.finding import listed
from gapsl.analysis.labels import Labels, read_labels
from gapsl.analysis.runs import stored_settings
from gapsl.common.errors import InputError
from gapsl.methods.base import Strategy
from gapsl.methods.registry import METHODS
from gapsl.run.config import setting_names
from gapsl.run.folder import RunFolder
from gapsl.run.records import Evaluation, RoundRecord
from gapsl.run.status import planned_rounds


@dataclass(frozen=True, eq=False)
class Run:
    """A run as its files tell it; there is at least one round."""

    settings: Mapping[str, Any]
    records: tuple[RoundRecord, ...]
    total_rounds: int
    finished: bool
    labels: Labels | None = None
    unseen: tuple[str, ...] = ()  # what could not be examined, and why
    names: tuple[str, ...] = ()  # of the devices, where they have some

    def setting(self, name: str) -> Any:
        """Return a setting by its dotted name, None if the run has none of that name."""
        found: Any = self.settings
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    @cached_property
    def method(self) -> type[Strategy] | None:
        """The method, None for one that is not registered here."""
        name = str(self.settings["method"])
        return METHODS[name] if name in METHODS else None  # noqa: SIM401 - a registry raises no KeyError

    def has(self, name: str) -> bool:
        """Say whether the method has a setting of this name of its own."""
        return self.method is not None and name in setting_names(self.method.parameters)

    def own(self, name: str) -> Any:
        """Return one of the method's own settings, None if it has none of that name."""
        section = self.method.section if self.method is not None else None
        return self.setting(f"{section}.{name}") if self.has(name) else None

    @property
    def pooled(self) -> bool:
        """Whether all data were in one place, so that no device has labels of its own."""
        return self.method is not None and self.method.pooled

    @property
    def trains_devices(self) -> bool:
        """Whether client-side models learn at all."""
        return self.method is None or self.method.trains_devices

    @cached_property
    def own_models(self) -> bool:
        """Whether every device trains a client-side model of its own, so that they can drift apart."""
        if self.method is not None:
            return (
                self.method.trains_devices and self.method.shared_client_model is Strategy.shared_client_model
            )
        # Of a method that is not known here: shared models are right and wrong together.
        each = [set(evaluation.device_accuracy.values()) for evaluation in self.evaluations]
        return not each or any(len(found) > 1 for found in each)

    @cached_property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """All evaluations so far."""
        return tuple(record.evaluation for record in self.records if record.evaluation is not None)

    @property
    def last(self) -> Evaluation | None:
        """The newest evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def chance(self) -> float | None:
        """The accuracy of guessing, where the number of classes is known."""
        return 1 / len(self.last.class_accuracy) if self.last and self.last.class_accuracy else None

    @cached_property
    def losses(self) -> dict[int, float]:
        """The training loss by round, where any device had a finite one."""
        return {record.round: record.loss for record in self.records if record.loss is not None}

    def who(self, *devices: int) -> str:
        """Return "device 3", "devices 3 and 5", or "camera-3 (device 2)" where devices have names."""
        if all(device < len(self.names) for device in devices):
            return listed([f"{self.names[device]} (device {device})" for device in devices])
        return f"device{'' if len(devices) == 1 else 's'} {listed(devices)}"

    def class_name(self, index: int) -> str:
        """Return a class's name, its number where names are not known."""
        return self.labels.classes[index] if self.labels is not None else str(index)


def read_run(folder: RunFolder, data_dir: str | None = None) -> Run:
    """Read all that a run's files say; `data_dir` is where the dataset's files are, for its labels."""
    settings = stored_settings(folder)
    records = tuple(folder.records())
    if not records and folder.result_file.exists():
        raise InputError(f"{folder.path} has no records; put records.jsonl back from a copy of the folder")
    if not records:
        raise InputError(
            f"{folder.path} has no rounds yet; wait for the first, or train it with: "
            f"gapsl resume {folder.path}"
        )
    result = folder.result()
    network = folder.network() or {}
    labels, reason = read_labels(folder, settings, data_dir)
    return Run(
        settings=settings,
        records=records,
        total_rounds=result.rounds if result is not None else planned_rounds(settings, records[-1]),
        finished=result is not None,
        labels=labels,
        unseen=unseen(records, reason),
        names=tuple(network.get("names") or ()),
    )


def unseen(records: tuple[RoundRecord, ...], no_labels: str) -> tuple[str, ...]:
    """Say what could not be examined, and why."""
    found = [f"labels ({no_labels})"] if no_labels else []
    if records[-1].norms is None:
        found.append("how long gradients are (recorded by later versions only)")
    if not any(record.evaluation is not None for record in records):
        found.append("accuracy (there has been no evaluation yet)")
    return tuple(found)
