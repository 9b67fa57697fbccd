"""The devices' states in a checkpoint: up to 64 devices in a file, whoever writes it.

A file `devices-0064-0127.safetensors` has those devices. A tensor `model.0.weight` of it is the stack of
theirs, and `of/model.0.weight` says whose, in that order: a device that has not trained yet lacks what its
optimizer keeps. Checkpoints of 0.1 have a file `device-0064.safetensors` for each device.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.tensors import read_tensors, write_tensors

OWNERS = "of/"
TOGETHER = 64  # devices in a file: few files, and none of them large
NAME = re.compile(r"devices?-(\d+)(?:-(\d+))?\.safetensors")  # of the first device, and the last of several


def write_devices(folder: Path, states: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Write the states of devices, whose ids are not in any file of the folder yet."""
    for ids in in_a_row(sorted(states)):
        stacked: dict[str, Tensor] = {}
        for name in dict.fromkeys(name for id in ids for name in states[id]):
            owners = [id for id in ids if name in states[id]]
            stacked[name] = torch.stack([states[id][name].detach() for id in owners])
            stacked[f"{OWNERS}{name}"] = torch.tensor(owners)
        write_tensors(folder / f"devices-{ids[0]:04d}-{ids[-1]:04d}.safetensors", stacked)


def in_a_row(ids: Sequence[int]) -> Iterator[list[int]]:
    """Yield ids that follow each other, so many at most that they go into one file."""
    row: list[int] = []
    for id in ids:
        if row and (len(row) == TOGETHER or id != row[-1] + 1):
            yield row
            row = []
        row.append(id)
    if row:
        yield row


def devices_in(folder: Path) -> dict[int, Path]:
    """Return the devices whose states are in a folder, and the files they are in."""
    found: dict[int, Path] = {}
    for path in folder.iterdir():
        named = NAME.fullmatch(path.name)
        if named is not None:
            first, last = int(named[1]), int(named[2] or named[1])
            found |= dict.fromkeys(range(first, last + 1), path)
    return dict(sorted(found.items()))


def read_devices(
    folder: Path, ids: Collection[int], where: torch.device | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield the states of some devices, file by file."""
    files = devices_in(folder)
    by_file: dict[Path, list[int]] = {}
    for id in ids:
        if id not in files:
            raise InputError(f"{folder} has no state of device {id}; put it back from a copy")
        by_file.setdefault(files[id], []).append(id)
    for path, mine in by_file.items():
        if path.name.startswith("device-"):
            yield mine[0], read_tensors(path, where)
            continue
        states: dict[int, dict[str, Tensor]] = {id: {} for id in mine}
        stacked = read_tensors(path, where)
        for name in [name for name in stacked if not name.startswith(OWNERS)]:
            owners = stacked[f"{OWNERS}{name}"].tolist()
            for id, tensor in zip(owners, stacked[name], strict=True):
                if id in states:
                    states[id][name] = tensor
        yield from states.items()


def read_device(folder: Path, id: int) -> dict[str, Tensor]:
    """Return the state of one device."""
    ((_, state),) = read_devices(folder, [id])
    return state
