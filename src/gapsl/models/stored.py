"""Weights in folders: an export, or the newest checkpoint of a run, part by part and as files have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.reading import read_bytes
from gapsl.common.tensors import Rounds, read_tensors
from gapsl.models.device_files import devices_in, read_device

EXPORT = "export.json"
KIND, SCHEMA = "gapsl-export", 1
AGAIN = "export it again"
HEAD = "head."  # before the names of a head that a device stores with its client-side model

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class StoredParts:
    """The weights of a trained model; None is what a folder does not have."""

    client: Weights | None
    server: Weights | None
    head: Weights | None = None  # of a device that keeps its labels


def stored_parts(folder: Path, device: int | None = None) -> StoredParts:
    """Return what an export or a run has: of a run, the client-side model of a device (None: the first)."""
    if (folder / EXPORT).is_file():
        return _exported(folder)
    if (folder / "config.yaml").is_file():
        return _of_run(folder, device)
    raise InputError(
        f"{folder} has neither a run in it nor an export; give one of them, or a file of weights"
    )


def is_run_of_devices(path: Path) -> bool:
    """Say whether a path is a run with client-side models in it, one for each device."""
    found = Rounds(path / "checkpoints").found()
    return bool(found) and bool(devices_in(found[max(found)]))


def read_export(folder: Path) -> dict[str, Any]:
    """Return what an export says of itself, if its files are what was written."""
    path = folder / EXPORT
    try:
        said = json.loads(read_bytes(path))
        if not isinstance(said, dict) or said.get("kind") != KIND:
            raise ValueError("it is no export of gapsl")
        if said.get("schema") != SCHEMA:
            raise ValueError(f"it has schema {said.get('schema')!r}, this gapsl reads {SCHEMA}")
        files = dict(said["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}; {AGAIN}") from None
    for name, expected in files.items():
        if Path(name).name != name:
            raise InputError(f"{path} names a file outside its folder: {name!r}; {AGAIN}")
        if not (folder / name).is_file() or sha256_of(folder / name) != expected:
            raise InputError(f"{folder / name} is missing, truncated or another file; {AGAIN}")
    return said


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_in(stored: Mapping[str, Tensor]) -> Weights:
    """Return the weights of a stored part, without its optimizer's state."""
    return {name.removeprefix("model."): value for name, value in stored.items() if name.startswith("model.")}


def head_in(stored: Mapping[str, Tensor]) -> Weights:
    """Return the weights of the head that a device stored, if it has one."""
    return weights_in({n.removeprefix(HEAD): value for n, value in stored.items() if n.startswith(HEAD)})


def _exported(folder: Path) -> StoredParts:
    files = read_export(folder)["files"]

    def read(what: str) -> Weights | None:
        name = f"{what}.safetensors"
        return read_tensors(folder / name, way_out=AGAIN) if name in files else None

    found = StoredParts(read("client"), read("server"), read("head"))
    if found.client is None and (found.server is None or len(files) > 1):
        raise InputError(
            f"{folder} is an ensemble, or not of format safetensors; give an export of one client: gapsl "
            "export RUN --client merged --out FOLDER"
        )
    return found


def _of_run(folder: Path, device: int | None) -> StoredParts:
    rounds = Rounds(folder / "checkpoints").found()
    if not rounds:
        raise InputError(f"{folder} has no checkpoint yet; train it first")
    newest = rounds[max(rounds)]
    servers = [weights_in(read_tensors(path)) for path in sorted(newest.glob("server*.safetensors"))]
    if not servers:
        raise InputError(f"{newest} has no server-side model; put it back from a copy of the folder")
    # SFL v1 has a copy for each device, which are one and the same after an averaging.
    if any(
        not torch.equal(other[name], value) for other in servers[1:] for name, value in servers[0].items()
    ):
        raise InputError(
            f"the server-side copies in {newest} have not been averaged; start from their mean: gapsl export "
            f"{folder} --client merged --out FOLDER, and give that folder"
        )
    clients = devices_in(newest)
    if not clients:
        return StoredParts(None, servers[0])
    if (device or 0) not in clients:
        raise InputError(
            f"{folder} has the client-side models of {len(clients)} devices, and none for device {device}; "
            "train "
            f"with as many devices, or start all from one: gapsl export {folder} --client merged --out FOLDER"
        )
    stored = read_device(newest, device or 0)
    return StoredParts(weights_in(stored), servers[0], head_in(stored) or None)
