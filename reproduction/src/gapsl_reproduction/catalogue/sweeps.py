"""What experiments vary besides the method: points by name, each the settings it lays over the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gapsl_reproduction.planned import Settings

Sweep = Mapping[str, Settings]

PARTITIONS: Sweep = {"iid": {"partition": "iid"}, "non-iid": {"partition": "dirichlet:0.1"}}


def alphas(*values: float) -> Sweep:
    """Return degrees of label skew."""
    return {f"{value:g}": {"partition": f"dirichlet:{value:g}"} for value in values}


def fleets(sizes: Iterable[int], **length: Any) -> Sweep:
    """Return numbers of devices."""
    return {str(size): {"devices": size, **length} for size in sizes}


def lengths(unit: str, *values: int) -> Sweep:
    """Return lengths of training, in rounds or epochs."""
    return {str(value): {unit: value} for value in values}


def singles(devices: int) -> Sweep:
    """Return one point for each device that trains alone."""
    return {str(device): {"single": {"device": device}} for device in range(devices)}


RATIOS: Sweep = {
    f"{ratio:g}": {"method": "gapsl/fixed-ratio", "gapsl": {"ratio": ratio}}
    for ratio in (0.2, 0.4, 0.6, 0.8, 1.0)
}
THRESHOLDS: Sweep = {
    f"{angle}": {"method": "gapsl/fixed-threshold", "gapsl": {"threshold": float(angle)}}
    for angle in (60, 70, 75, 80, 85, 90)
}
SHIFTS: Sweep = {shift: {"partition": f"iid+{shift}"} for shift in ("noise:0.3", "rotation:45", "colour:0.5")}
FAULTS: Sweep = {
    f"{kind}:{count}": {"faults": f"{kind}:{count}"}
    for kind in ("flip", "labels", "noise")
    for count in (1, 2, 3)
}
# What the paper leaves open, one thing at a time over our reading of it.
READINGS: Sweep = {
    "our reading": {},
    **{f"eta {eta:g}".replace("-", "−"): {"gapsl": {"eta": eta}} for eta in (-1.0, -0.5, 0.0, 1.0)},
    "reduction sum": {"reduction": "sum"},
    "weights by data size": {"reduction": "samples"},
    "device gradient follow": {"device_gradient": "follow"},
    "excluded plain": {"gapsl": {"excluded": "plain"}},
    **{f"lambda {weight:g}": {"gapsl": {"lambda": weight}} for weight in (0.0, 0.005, 0.05, 0.5)},
    **{
        f"nobody excluded, lambda {weight:g}": {"gapsl": {"exclusion": "none", "lambda": weight}}
        for weight in (0.0005, 0.05, 0.5, 5.0)
    },
    "penalty exact": {"gapsl": {"penalty": "exact"}},
    "penalty none": {"gapsl": {"penalty": "none"}},
    "norm none": {"norm": "none"},
    "norm batch": {"norm": "batch"},
}


def ends(sweep: Sweep) -> Sweep:
    """Return the first and the last point of a sweep."""
    names = list(sweep)
    return {name: sweep[name] for name in dict.fromkeys([names[0], names[-1]])}
