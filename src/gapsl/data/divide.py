"""From a spec, `<labels>[+<shift>]`, to a partition of the training samples."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.common.streams import numpy_stream
from gapsl.data.partition import Partition, load_partition
from gapsl.data.partitioners import PARTITIONERS, Ints, interleave
from gapsl.data.shift import make_shifts

GRAMMAR = (
    "write <labels>[+<shift>]: iid, dirichlet:ALPHA[,min=N], unequal:ALPHA[,min=N], shards:K or file:PATH, "
    "then if you like +noise:STRENGTH, +colour:STRENGTH or +rotation:DEGREES"
)


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
    if division.startswith("file:"):
        saved = _load(division.removeprefix("file:"), len(known), devices, fingerprint, validation)
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
    name, _, argument = division.partition(":")
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


def _load(path: str, samples: int, devices: int, fingerprint: str, validation: float) -> Partition:
    saved = load_partition(path)
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
    return saved
