"""Partitioners: ways to divide labelled samples among devices, one array of positions per device."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.common.registry import Registry

Ints = NDArray[np.int64]
# labels, devices, the part of the spec after the colon, randomness -> positions of each device
Partitioner = Callable[[Ints, int, str, np.random.Generator], list[Ints]]

PARTITIONERS: Registry[Partitioner] = Registry("partition")

REDRAWS = 1000
MIN_SAMPLES = 10
# Outside, the draws under- or overflow; and nothing differs any more from shards:1 or iid.
ALPHA_RANGE = (1e-4, 1e6)


def iid(labels: Ints, devices: int, argument: str, rng: np.random.Generator) -> list[Ints]:
    """`iid`: a random deal of everything, sizes equal but for one sample."""
    if argument:
        raise InputError(f"iid takes no argument, but got {argument!r}; write iid")
    return np.array_split(rng.permutation(len(labels)), devices)


def dirichlet(labels: Ints, devices: int, argument: str, rng: np.random.Generator) -> list[Ints]:
    """`dirichlet:ALPHA[,min=10]`: each class is shared out by its own Dirichlet(alpha) draw."""
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    cuts = _draw_cuts("dirichlet", argument, [len(own) for own in members], devices, rng)
    # One list per class of one piece per device.
    parts = [np.split(rng.permutation(own), at[:-1]) for own, at in zip(members, cuts, strict=True)]
    return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]


def unequal(labels: Ints, devices: int, argument: str, rng: np.random.Generator) -> list[Ints]:
    """`unequal:ALPHA[,min=10]`: amounts by a Dirichlet(alpha) draw, label proportions alike."""
    cuts = _draw_cuts("unequal", argument, [len(labels)], devices, rng)
    return np.split(interleave(labels, rng), cuts[0, :-1])


def shards(labels: Ints, devices: int, argument: str, rng: np.random.Generator) -> list[Ints]:
    """`shards:K`: exactly K classes per device; each class in equal shards to those that have it.

    McMahan's shards of the label-sorted data can straddle two classes. Here the classes are dealt
    first and then cut, so that K means K.
    """
    present = np.unique(labels)
    if not argument.isdecimal() or int(argument) < 1:
        raise InputError(f"shards:{argument}: write shards:K, K a whole number of classes from 1 up")
    each = int(argument)
    if each > len(present):
        raise InputError(f"shards:{each}: there are {len(present)} classes; choose K up to {len(present)}")
    if each * devices < len(present):
        need = math.ceil(len(present) / devices)
        raise InputError(
            f"shards:{each}: {devices} devices with {each} each cannot hold all {len(present)} classes; "
            f"choose K from {need} up, or more devices"
        )
    owners = _deal_classes(len(present), devices, each, rng)
    parts: list[list[Ints]] = [[] for _ in range(devices)]
    for label, holders in zip(present, owners, strict=True):
        pieces = np.array_split(rng.permutation(np.flatnonzero(labels == label)), len(holders))
        for device, piece in zip(rng.permutation(holders), pieces, strict=True):
            parts[device].append(piece)
    return [np.concatenate(pieces) for pieces in parts]


PARTITIONERS.register("iid", iid)
PARTITIONERS.register("dirichlet", dirichlet)
PARTITIONERS.register("unequal", unequal)
PARTITIONERS.register("shards", shards)


def interleave(labels: Ints, rng: np.random.Generator) -> Ints:
    """Return a random order of all positions with the classes spread evenly along it.

    The r-th sample of a class of n (in a random order) stands at (r + u) / n of the way, u one random
    number per class. So a stretch of a fraction f holds f·n of each class, give or take one or two:
    cut anywhere, all pieces are stratified.
    """
    count = len(labels)
    shuffled = rng.permutation(count)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
    rank = np.arange(count) - np.repeat(starts, sizes)
    offset = np.repeat(rng.random(len(sizes)), sizes)
    place = (rank + offset) / np.repeat(sizes, sizes)
    return np.asarray(by_class[np.argsort(place, kind="stable")], dtype=np.int64)


def _deal_classes(classes: int, devices: int, each: int, rng: np.random.Generator) -> list[list[int]]:
    """Return the devices that hold each class: `each` classes per device, classes as often as one another."""
    left = np.full(classes, devices * each // classes)
    left[rng.permutation(classes)[: devices * each % classes]] += 1
    owners: list[list[int]] = [[] for _ in range(classes)]
    for device in range(devices):
        # The classes with most places left, ties at random: any other choice can run into a dead end.
        for label in np.lexsort((rng.random(classes), -left))[:each]:
            owners[label].append(device)
            left[label] -= 1
    return owners


def _parse_alpha(name: str, argument: str, samples: int, devices: int) -> tuple[float, int]:
    value, comma, option = argument.partition(",")
    key, _, number = option.partition("=")
    if comma and (key != "min" or not number.isdecimal()):
        raise InputError(f"{name}:{argument}: write {name}:ALPHA or {name}:ALPHA,min=SAMPLES")
    try:
        alpha = float(value)
    except ValueError:
        alpha = math.nan
    low, high = ALPHA_RANGE
    if not low <= alpha <= high:
        raise InputError(
            f"{name}:{argument}: alpha must be a number above 0 ({low:g} to {high:g}), for example {name}:0.1"
        )
    least = max(1, int(number)) if comma else MIN_SAMPLES
    if least * devices > samples:
        raise InputError(
            f"{name}:{argument}: {devices} devices with {least} samples or more need {devices * least}, "
            f"but there are {samples}; lower it with min={samples // devices}, or use fewer devices"
        )
    return alpha, least


def _draw_cuts(name: str, argument: str, totals: list[int], devices: int, rng: np.random.Generator) -> Ints:
    """Return where each row's samples are cut, so that piece i ends at cut i and the last holds the rest.

    Dirichlet shares are drawn again until every device has as many samples as the spec asks for.
    """
    alpha, least = _parse_alpha(name, argument, sum(totals), devices)
    amounts = np.array(totals)[:, None]
    smallest = 0
    for _ in range(REDRAWS):
        shares = rng.dirichlet(np.full(devices, alpha), size=len(totals))
        cuts: Ints = np.minimum(np.floor(np.cumsum(shares, axis=1) * amounts).astype(np.int64), amounts)
        cuts[:, -1] = totals
        sizes = np.diff(cuts, axis=1, prepend=0).sum(axis=0)
        if sizes.min() >= least:
            return cuts
        smallest = max(smallest, int(sizes.min()))
    fix = f"lower it with min={smallest}, " if smallest else "not even min=1 is met: "
    raise InputError(
        f"{name}:{argument}: in {REDRAWS} draws some device always had fewer than {least} samples (at best "
        f"{smallest}); {fix}raise alpha, or use fewer devices"
    )
