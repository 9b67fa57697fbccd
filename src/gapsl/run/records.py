"""What a run writes of itself: a record a round, evaluations, and the result. Read and written here alone."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gapsl.common.errors import InputError
from gapsl.common.files import plain
from gapsl.device.exchange import ProbeRecord, Selection
from gapsl.fleets.base import FleetEvents, Split
from gapsl.run.records_v1 import upgrade_record, upgrade_result

SCHEMA = 2  # of records and results; what version 1 wrote is read by gapsl.run.records_v1

ByDevice = Mapping[int, float]
Upgrade = Callable[[Mapping[str, Any]], dict[str, Any]]


class NewerSchema(InputError):
    """A file of a version that this one does not know."""


class Subscripts:
    """Lets fields be read as `record["loss"]`, as earlier versions had them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False)

    def __getitem__(self, name: str) -> Any:
        for part in (self, *map(self.__dict__.get, ("selection", "probes", "events"))):
            if isinstance(name, str) and name in getattr(part, "__dict__", ()):
                warnings.warn(f"use the attribute .{name} instead of [{name!r}]", DeprecationWarning, 2)
                return getattr(part, name)
        return self.__dict__.get("details", {})[name]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with the schema they follow; what is not there, or empty, is left out."""
        return {"schema": SCHEMA, **plain(self)}


@dataclass(frozen=True, kw_only=True)
class Angles:
    """The angle between every two devices' gradients."""

    devices: Annotated[tuple[int, ...], "whose gradients, in ascending order"]
    above: Annotated[
        tuple[tuple[float, ...], ...], "a row per device: its angles to the devices after it, in radians"
    ]

    def matrix(self) -> list[list[float]]:
        """Return the angles of all pairs, a row and a column a device in the order of `devices`."""
        size = len(self.devices)
        full = [[0.0] * size for _ in range(size)]
        for i, row in enumerate(self.above):
            for j, angle in enumerate(row, start=i + 1):
                full[i][j] = full[j][i] = angle
        return full

    def scores(self) -> dict[int, float]:
        """Return each device's mean angle to the others."""
        rows = zip(self.devices, self.matrix(), strict=True)
        return {device: sum(row) / max(1, len(row) - 1) for device, row in rows}


# What an evaluation has one number of.
MEASURES = (
    "device_mean", "device_std", "device_min", "device_max", "ensemble", "merged", "local", "test_loss",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Evaluation(Subscripts):
    """Accuracy after a round, and whose."""

    round: Annotated[int, "the round after which it was measured"]
    epoch: Annotated[float, "the same in passes over all data"]
    split: Annotated[Split, "`test` or `validation`"]
    device_mean: Annotated[float, "mean accuracy over the devices, each with its own client-side model"]
    device_std: Annotated[float, "its standard deviation over the devices"]
    device_min: Annotated[float, "the worst device's accuracy"]
    device_max: Annotated[float, "the best device's accuracy"]
    ensemble: Annotated[
        float | None, "accuracy of the devices' mean prediction; none where tests are own"
    ] = None
    merged: Annotated[
        float | None, "accuracy of the averaged client-side models; none where nobody may see them"
    ] = None
    local: Annotated[float | None, "mean accuracy on each device's own label mix, or own test samples"] = None
    test_loss: Annotated[float | None, "mean cross-entropy over the devices"] = None
    device_accuracy: Annotated[
        ByDevice, "accuracy by device, without those that were away or have no test samples"
    ]
    class_accuracy: Annotated[
        tuple[float | None, ...], "mean over devices by class; null for a class without samples"
    ] = ()
    confusion: Annotated[
        tuple[tuple[int, ...], ...],
        "after the last round: samples by true class (row) and predicted class, added over the devices",
    ] = ()
    drift: Annotated[
        ByDevice | None, "by device: how far its client-side model is from its start, relative to its length"
    ] = None
    bytes_sent: Annotated[Mapping[int, int], "by device, since the start"]
    bytes_received: Annotated[Mapping[int, int], "by device, since the start"]
    seconds: Annotated[float, "of training, since the start"]
    away: Annotated[tuple[int, ...], "devices that were not there to be evaluated"] = ()


@dataclass(frozen=True, kw_only=True)
class FinalEvaluation(Evaluation):
    """The last evaluation, on the test set, and what is known at the end."""

    weights_sha256: Annotated[str, "SHA-256 over all models of the run"]
    converged_epoch: Annotated[
        float | None, "first epoch within a point of the best accuracy (mean of three evaluations)"
    ] = None
    validation: Annotated[Evaluation | None, "the last evaluation on the validation split, if any"] = None
    unheard: Annotated[tuple[int, ...], "devices that are not in the digest"] = ()


@dataclass(frozen=True, kw_only=True)
class RoundRecord(Subscripts):
    """One round: a line of records.jsonl."""

    round: Annotated[int, "counts from 1"]
    epoch: Annotated[float, "passes over all data so far"]
    loss: Annotated[float | None, "mean loss over the devices; null if it was not finite"]
    losses: Annotated[ByDevice, "loss by device, before any regulariser; without those skipped"]
    norms: Annotated[
        ByDevice | None, "by device: length of the gradient it trains on; none for a device that skips"
    ] = None
    skipped: Annotated[tuple[int, ...], "devices left out as outliers, or not finite"] = ()
    reasons: Annotated[Mapping[int, str], "by skipped device: why"] = field(default_factory=dict)
    averaged: Annotated[bool, "whether the client-side models were averaged after it"] = False
    bytes_sent: Annotated[Mapping[int, int], "by device, in this round"]
    bytes_received: Annotated[Mapping[int, int], "by device, in this round"]
    seconds: Annotated[
        Mapping[str, float],
        "by phase: `collect` (devices' forward), `server`, `deliver` (devices' backward), `move` "
        "(averaging and handing over), `evaluate`",
    ]
    device_seconds: Annotated[
        Mapping[str, ByDevice],
        "by phase and device: `forward`, `server` (passes for the device), `backward` (and step; in several "
        "processes and over the network that of the round before), `waiting` (over the network: for the "
        "device, less what it says it computed); with more than 20 devices in it at evaluations only",
    ] = field(default_factory=dict)
    angle_mean: Annotated[float | None, "mean angle between two devices' gradients, in radians"] = None
    angles: Annotated[
        Angles | None,
        "the angles of all pairs; with more than 20 devices at evaluations only, with more than 200 never",
    ] = None
    selection: Annotated[Selection | None, "whom the method chose, if it does"] = None
    probes: Annotated[ProbeRecord | None, "how far the devices agree on the probes, if there are any"] = None
    events: Annotated[FleetEvents, "who was missing and who went back, over the network"] = field(
        default_factory=FleetEvents
    )
    evaluation: Annotated[Evaluation | None, "the evaluation after this round, if there was one"] = None
    details: Annotated[Mapping[str, Any], "what a method of one's own adds, as JSON values"] = field(
        default_factory=dict
    )

    @property
    def present(self) -> frozenset[int]:
        """The devices that took part."""
        return frozenset(self.losses) | frozenset(self.skipped)

    @property
    def scores(self) -> Mapping[int, float]:
        """Each device's mean angle to the others: the method's, or from the angles; empty if not measured."""
        if self.selection is not None:
            return self.selection.scores
        return self.angles.scores() if self.angles is not None else {}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> RoundRecord:
        """Read a line of records.jsonl, of this version or an older one; InputError says what is wrong."""
        found: RoundRecord = read(RoundRecord, values, upgrade_record)
        return found

    @staticmethod
    def from_line(line: bytes) -> RoundRecord:
        """Read a line of records.jsonl as it is in the file: the same, several times as fast."""
        if line.startswith(b'{"schema": %d,' % SCHEMA):
            try:
                found: RoundRecord = adapter(RoundRecord).validate_json(line)
                return found
            except ValidationError:
                pass  # the other way says in words what is wrong
        return RoundRecord.from_dict(json.loads(line))


@dataclass(frozen=True, kw_only=True)
class RunResult(Subscripts):
    """What came out of a run: the content of result.json."""

    method: Annotated[str, "the method's name"]
    label: Annotated[str | None, "what the run is called in tables, if not by its method"] = None
    seed: Annotated[int, "the seed every random choice follows from"]
    rounds: Annotated[int, "rounds trained"]
    rounds_per_epoch: Annotated[int, "rounds in a pass over all data"]
    classes: Annotated[tuple[str, ...], "the names of the classes"] = ()
    extended: Annotated[
        bool, "whether training was extended, and is not what it would have been with these rounds at first"
    ] = False
    config: Annotated[Mapping[str, Any], "every setting, and under `custom` what was given from Python"]
    final: Annotated[FinalEvaluation, "the evaluation at the end, on the test set"]
    history: Annotated[
        tuple[Evaluation, ...], "every evaluation; on the validation split, where there is one"
    ]

    @property
    def called(self) -> str:
        """What the run is called: its label, or its method."""
        return self.label or self.method

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> RunResult:
        """Read a result.json, of this version or an older one; InputError says what is wrong."""
        found: RunResult = read(RunResult, values, upgrade_result)
        return found

    def to_pandas(self) -> Any:
        """Return a data frame with a row an evaluation: its numbers, and the run's method, label and seed."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InputError("a data frame needs pandas; pip install pandas") from None
        numbers = [f.name for f in dataclasses.fields(Evaluation) if f.name not in BY_DEVICE]
        rows = [{name: getattr(entry, name) for name in numbers} for entry in self.history]
        run = {"method": self.method, "label": self.label, "seed": self.seed}
        return pandas.DataFrame([{**run, **row} for row in rows])


BY_DEVICE = {
    "device_accuracy", "class_accuracy", "confusion", "drift", "bytes_sent", "bytes_received", "away",
}  # fmt: skip


def read(kind: type, values: Mapping[str, Any], upgrade: Upgrade) -> Any:
    """Return JSON values as one of the types; refuse, with a sentence, what does not fit them."""
    try:
        schema = values.get("schema", 1)
        if schema == 1:
            values = upgrade(values)
        elif schema != SCHEMA:
            raise NewerSchema(
                f"it has schema version {schema}, this gapsl reads 1 to {SCHEMA}; use the gapsl version "
                "that wrote it (environment.json names it)"
            )
        return adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        given = "it is missing" if first["type"] == "missing" else f"{first['input']!r:.60}"
        raise InputError(f"{where} is wrong ({given})") from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("it is not what gapsl writes") from None


@functools.cache
def adapter(kind: type) -> TypeAdapter[Any]:
    """Return what reads a type from JSON values."""
    return TypeAdapter(kind)


def finite(values: Mapping[int, float]) -> dict[int, float]:
    """Return numbers by device without those that are none, in ascending order."""
    return {device: value for device, value in sorted(values.items()) if math.isfinite(value)}


def finite_or_none(value: float | None) -> float | None:
    """Return a number, or None for what is none."""
    return value if value is not None and math.isfinite(value) else None


def documented(kind: type[Any]) -> list[tuple[str, str]]:
    """Return the names of a type's fields, and what they mean."""
    hints = get_type_hints(kind, include_extras=True)
    return [(one.name, get_args(hints[one.name])[1]) for one in dataclasses.fields(kind)]
