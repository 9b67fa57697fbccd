"""Who has which training samples, and the JSON file that repeats it on any machine and any version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.data.partitioners import Ints
from gapsl.data.shift import SHIFTS, Shift

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Partition:
    """The training samples of every device, and those held out for validation."""

    devices: tuple[Ints, ...]  # ascending indices into the training part
    validation: Ints  # in the order of evaluation: curves take the first ones
    shift: tuple[Shift, ...] | None  # one per device
    spec: str
    seed: int
    samples: int  # of the whole training part
    fingerprint: str = ""  # of the source, where it is known

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many samples each device has."""
        return tuple(len(own) for own in self.devices)

    def label_counts(self, labels: Tensor | NDArray[Any], classes: int) -> Ints:
        """Return how many samples of each class each device has: shape (devices, classes)."""
        known = np.asarray(labels)
        return np.stack([np.bincount(known[own], minlength=classes) for own in self.devices])

    def save(self, path: str | Path) -> None:
        """Write a JSON file beside its place and rename it there, so that no half file is ever seen."""
        path, shift = Path(path), self.shift
        content = {
            "schema": SCHEMA,
            "spec": self.spec,
            "seed": self.seed,
            "samples": self.samples,
            "fingerprint": self.fingerprint,
            "shift": None if shift is None else [{"kind": s.kind, "values": list(s.values)} for s in shift],
            "validation": self.validation.tolist(),
            "devices": [own.tolist() for own in self.devices],
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(content, separators=(",", ":")))
        except OSError as error:
            raise InputError(f"cannot write {path} ({error.strerror}); choose another folder") from error


def load_partition(path: str | Path) -> Partition:
    """Read a saved partition, checking all that can be checked without its data."""
    path = Path(path).expanduser()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the partition {path} ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a partition ({error}); save it again") from error
    if not isinstance(content, dict) or "schema" not in content:
        raise InputError(f"{path} is no partition saved by gapsl; make one with Partition.save")
    if content["schema"] != SCHEMA:
        raise InputError(
            f"{path} has schema {content['schema']!r}, this gapsl reads {SCHEMA}; use the version that wrote "
            f"it, or make it again from spec {content.get('spec')!r} and seed {content.get('seed')!r}"
        )
    try:
        return _partition(content)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is damaged ({error}); save it again") from error


def _partition(content: dict[str, Any]) -> Partition:
    samples = _whole(content["samples"], "samples")
    devices = [np.sort(_indices(own, samples, f"device {i}")) for i, own in enumerate(content["devices"])]
    validation = _indices(content["validation"], samples, "validation")
    if not devices:
        raise ValueError("there are no devices")
    if empty := [i for i, own in enumerate(devices) if len(own) == 0]:
        raise ValueError(f"device {empty[0]} has no samples")
    every = np.concatenate([*devices, validation])
    values, counts = np.unique(every, return_counts=True)
    if len(values) != len(every):
        raise ValueError(f"sample {values[counts > 1][0]} is listed twice")
    shift = content["shift"]
    if shift is not None:
        shift = tuple(_shift(entry) for entry in shift)
        if len(shift) != len(devices):
            raise ValueError(f"{len(shift)} shifts for {len(devices)} devices")
    return Partition(
        devices=tuple(devices),
        validation=validation,
        shift=shift,
        spec=str(content["spec"]),
        seed=_whole(content["seed"], "seed"),
        samples=samples,
        fingerprint=str(content["fingerprint"]),
    )


def _indices(listed: Any, samples: int, owner: str) -> Ints:
    if not isinstance(listed, list) or any(type(index) is not int for index in listed):
        raise ValueError(f"{owner} is not a list of whole numbers")
    indices = np.array(listed, dtype=np.int64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < samples:
        raise ValueError(f"{owner} has an index outside 0 to {samples - 1}")
    return indices


def _whole(value: Any, name: str) -> int:
    if type(value) is not int:
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value


def _shift(entry: Any) -> Shift:
    kind, values = entry["kind"], tuple(float(value) for value in entry["values"])
    expected = 6 if kind == "colour" else 1
    if kind not in tuple(SHIFTS) or len(values) != expected or not np.isfinite(values).all():
        raise ValueError(f"{entry!r} is no shift")
    return Shift(kind, values)
