"""Tensors in files: written whole or not at all, listed by round, and checked when they are read."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.files import placed
from gapsl.common.reading import open_file

CANNOT_STORE = (OSError, SafetensorError)  # what writing raises where there is no room
PREFIX, DRAFT = "round-", ".draft-"
DIGEST = "sha256"  # in what a file says of itself


class Rounds:
    """What is stored after the rounds of a run: files or folders like `round-000012`."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        self.folder, self._suffix = folder, suffix

    def path(self, round: int) -> Path:
        """Return where a round is, or will be."""
        return self.folder / f"{PREFIX}{round:06d}{self._suffix}"

    def found(self) -> dict[int, Path]:
        """Return what is stored, the oldest first."""
        names = {
            path.name.removeprefix(PREFIX).removesuffix(self._suffix): path
            for path in self.folder.glob(f"{PREFIX}*{self._suffix}")
        }
        return dict(sorted((int(name), path) for name, path in names.items() if name.isdecimal()))

    def draft(self) -> Path:
        """Return where something is written before it is renamed: one place for each thread."""
        return self.folder / f"{DRAFT}{os.getpid()}-{threading.get_ident()}"

    def tidy(self) -> None:
        """Remove what a killed process left half written."""
        for left in self.folder.glob(f"{DRAFT}*"):
            remove(left)

    def prune(self, keep: int, *, but: Collection[int] = ()) -> None:
        """Remove all but the newest few, and but some."""
        for round, path in list(self.found().items())[:-keep]:
            if round not in but:
                remove(path)

    def forget_after(self, round: int) -> None:
        """Remove what was stored after a round that the run has gone back to."""
        for later, path in self.found().items():
            if later > round:
                remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(NotADirectoryError):  # so it is not there
            path.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], **said: str) -> None:
    """Write tensors, tied ones once each, and what the file says of itself."""
    seen: set[int] = set()
    stored = {}
    for name, value in tensors.items():
        tied = value.numel() > 0 and value.data_ptr() in seen
        seen.add(value.data_ptr())
        stored[name] = value.detach().cpu().clone() if tied else value.detach().cpu().contiguous()
    try:
        save_file(stored, path, metadata=said or None)
    except SafetensorError as error:  # which hides why the file could not be written
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def place_tensors(path: Path, tensors: Mapping[str, Tensor], **said: str) -> None:
    """Write a file that is there as a whole, after a power cut too, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with placed(path, Rounds(path.parent).draft()) as draft:
        write_tensors(draft, tensors, **said)


def read_tensors(
    path: Path,
    where: torch.device | None = None,
    *,
    checked: bool = False,
    way_out: str = "put it back from a copy",
) -> dict[str, Tensor]:
    """Read tensors; `checked`: the file must have their digest, which `place_tensors` was given."""
    try:
        with opened(path) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            expected = (file.metadata() or {}).get(DIGEST)
    except CANNOT_STORE as error:
        raise InputError(f"{path} cannot be read: {error}; {way_out}") from None
    if checked and digest(found) != expected:
        raise InputError(f"{path} is damaged; {way_out}")
    return found if where is None else {name: tensor.to(where) for name, tensor in found.items()}


def opened(path: Path) -> Any:
    """Return a file of tensors; a pipe, which nobody may ever write to, is none."""
    open_file(path).close()
    return safe_open(path, framework="pt")


def said_by(path: Path) -> dict[str, str]:
    """Return what a file says of itself, nothing if it cannot be read."""
    try:
        with opened(path) as file:
            return dict(file.metadata() or {})
    except CANNOT_STORE:
        return {}


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors, their names, types and shapes."""
    sha = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        sha.update(f"{name}:{value.dtype}:{tuple(value.shape)};".encode())
        sha.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
