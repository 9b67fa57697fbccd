"""Who has which training samples: made from a spec, `<labels>[+<shift>]`, or read from a JSON file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.common.reading import read_bytes
from gapsl.common.registry import nearest
from gapsl.common.streams import numpy_stream
from gapsl.data.partitioners import PARTITIONERS, Ints, interleave
from gapsl.data.transform import SHIFTS, Shift, make_shifts

SCHEMA = 1
GRAMMAR = (
    "write <labels>[+<shift>]: iid, dirichlet:ALPHA[,min=N], unequal:ALPHA[,min=N], shards:K or file:PATH, "
    "then if you like +noise:STRENGTH, +colour:STRENGTH or +rotation:DEGREES"
)


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
        """Write a JSON file that repeats it on any machine and any version."""
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


def make_partition(
    spec: str,
    labels: Tensor | NDArray[Any],
    *,
    classes: int,
    devices: int,
    seed: int,
    validation: float = 0.0,
    fingerprint: str = "",
) -> Partition:
    """Divide the training samples with these labels among the devices.

    Every draw comes from the stream (seed, "partition"); the result depends on the arguments alone.
    """
    known = np.asarray(torch.as_tensor(labels), dtype=np.int64)
    if devices < 1:
        raise InputError(f"devices = {devices}; there must be at least 1")
    if len(known) and not 0 <= known.min() <= known.max() < classes:
        raise InputError(
            f"labels from {known.min()} to {known.max()} for {classes} classes; give all classes"
        )
    division, shift = _parse(spec)
    shifts = make_shifts(shift, devices=devices, seed=seed) if shift else None
    name, _, argument = division.partition(":")
    if name == "file":
        saved = load_partition(argument)
        _check_fits(saved, argument, len(known), devices, fingerprint, validation)
        if shifts is None:
            return saved
        if saved.shift is not None:
            raise InputError(f"{spec}: that partition has a shift already ({saved.spec}); leave out +{shift}")
        return replace(saved, shift=shifts, spec=f"{saved.spec}+{shift}")

    rng = numpy_stream(seed, "partition")
    pool, held_out = _hold_out(known, validation, rng)
    if devices > len(pool):
        raise InputError(
            f"{devices} devices but {len(pool)} training samples; use at most {len(pool)}, or more data"
        )
    parts = PARTITIONERS[name](known[pool], devices, argument, rng)
    if empty := [i for i, part in enumerate(parts) if len(part) == 0]:
        raise InputError(f"{spec}: device {empty[0]} would get no samples; use fewer devices or more data")
    owned = tuple(np.sort(pool[part]) for part in parts)
    return Partition(owned, held_out, shifts, spec, seed, len(known), fingerprint)


def _parse(spec: str) -> tuple[str, str]:
    """Return the labels' part and the shift's part (or "") of a spec."""
    if spec.startswith("file:"):  # a path may hold a plus; only one with a shift behind it is ours
        found = re.fullmatch(r"(.*)\+((?:noise|rotation|colou?r):[^+/]*)", spec)
        return (found[1], found[2]) if found else (spec, "")
    division, *shifts = re.split(r"\+(?=[a-z])", spec)  # not the plus of 1e+1
    name = division.partition(":")[0]
    if name not in PARTITIONERS:
        raise InputError(f"unknown partition {name!r}; {nearest(name, [*PARTITIONERS, 'file'])}. {GRAMMAR}")
    if len(shifts) > 1:
        raise InputError(f"{spec}: there can be one shift only; {GRAMMAR}")
    return division, shifts[0] if shifts else ""


def _hold_out(labels: Ints, fraction: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the positions to partition and those held out, both ascending."""
    if not 0 <= fraction < 1:
        raise InputError(f"validation = {fraction}; give the fraction to hold out, from 0 up to below 1")
    if fraction == 0:
        return np.arange(len(labels)), np.zeros(0, np.int64)
    order = interleave(labels, rng)
    cut = round(fraction * len(labels))
    if cut == 0:
        raise InputError(
            f"validation = {fraction} of {len(labels)} samples holds out none; give a larger fraction, or 0"
        )
    return np.sort(order[cut:]), np.sort(order[:cut])


def _check_fits(
    saved: Partition, path: str, samples: int, devices: int, fingerprint: str, validation: float
) -> None:
    if saved.samples != samples:
        raise InputError(
            f"{path} divides {saved.samples} samples, the dataset has {samples}; name the one it was made of"
        )
    if fingerprint and saved.fingerprint and saved.fingerprint != fingerprint:
        raise InputError(
            f"{path} was made of other data (fingerprints differ); make it again from this dataset"
        )
    if len(saved.devices) != devices:
        raise InputError(f"{path} is for {len(saved.devices)} devices; set devices = {len(saved.devices)}")
    if validation > 0 and len(saved.validation) == 0:
        raise InputError(f"{path} holds nothing out; set validation = 0, or save a partition that does")


def load_partition(path: str | Path) -> Partition:
    """Read a saved partition, checking all that can be checked without its data."""
    path = Path(path).expanduser()
    try:
        content = json.loads(read_bytes(path))
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
        return _from_content(content)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is damaged ({error}); save it again") from error


def _from_content(content: dict[str, Any]) -> Partition:
    seed, samples = content["seed"], content["samples"]
    for name, value in (("seed", seed), ("samples", samples)):
        if type(value) is not int:
            raise ValueError(f"{name} is {value!r}, not a whole number")
    devices = [np.sort(_indices(own, samples, f"device {i}")) for i, own in enumerate(content["devices"])]
    validation = _indices(content["validation"], samples, "validation")
    if not devices:
        raise ValueError("there are no devices")
    if empty := [i for i, own in enumerate(devices) if len(own) == 0]:
        raise ValueError(f"device {empty[0]} has no samples")
    values, counts = np.unique(np.concatenate([*devices, validation]), return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"sample {values[counts > 1][0]} is listed twice")
    shift = None if content["shift"] is None else tuple(_shift(entry) for entry in content["shift"])
    if shift is not None and len(shift) != len(devices):
        raise ValueError(f"{len(shift)} shifts for {len(devices)} devices")
    spec, fingerprint = str(content["spec"]), str(content["fingerprint"])
    return Partition(tuple(devices), validation, shift, spec, seed, samples, fingerprint)


def _indices(listed: Any, samples: int, owner: str) -> Ints:
    if not isinstance(listed, list) or any(type(index) is not int for index in listed):
        raise ValueError(f"{owner} is not a list of whole numbers")
    indices = np.array(listed, dtype=np.int64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < samples:
        raise ValueError(f"{owner} has an index outside 0 to {samples - 1}")
    return indices


def _shift(entry: Any) -> Shift:
    kind, values = entry["kind"], tuple(float(value) for value in entry["values"])
    expected = 6 if kind == "colour" else 1
    if kind not in tuple(SHIFTS) or len(values) != expected or not np.isfinite(values).all():
        raise ValueError(f"{entry!r} is no shift")
    return Shift(kind, values)
