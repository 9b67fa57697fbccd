"""A device's own checkpoints: its half lives nowhere else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.files import placed
from gapsl.network.protocol import wire_pb2 as wire

KEPT = 3  # the server may be one checkpoint behind, and the newest may be the one that was being written


class Store:
    """The checkpoints of one device in one run, a file a round, there as a whole or not at all."""

    def __init__(self, folder: Path, owner: str = "") -> None:
        self.folder, self._owner = folder, owner

    def check(self) -> None:
        """Refuse a folder that cannot be written, or is another's, before anything is trained for it."""
        for path in self._files().values():
            if (owner := metadata_of(path).get("owner", self._owner)) != self._owner:
                raise InputError(f"{path} is of {owner}, not of {self._owner}; put it back where it was")
        try:
            self._place({}, self.folder / "writable.safetensors")
            (self.folder / "writable.safetensors").unlink()
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot write to {self.folder}: {error}; give another --state") from None

    def stored(self) -> list[wire.Stored]:
        """Return what can be restored, ascending; what cannot be read is left out."""
        found = []
        for round, path in sorted(self._files().items()):
            try:
                found.append(wire.Stored(round=round, generation=int(metadata_of(path)["generation"])))
            except (KeyError, ValueError):
                continue
        return found

    def write(self, round: int, generation: int, tensors: dict[str, Tensor]) -> None:
        """Store a round; a crash at any moment leaves the others as they were."""
        final = self._path(round)
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        try:
            self._place(plain, final, generation=str(generation), owner=self._owner, sha256=digest(plain))
        except (OSError, SafetensorError) as error:
            raise Unavailable(
                f"cannot write {final}: {error}; make room, and start the device again"
            ) from None
        for old in sorted(self._files())[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def forget_after(self, round: int) -> None:
        """Drop what was stored after a round that the run has gone back to."""
        for later in [found for found in self._files() if found > round]:
            self._path(later).unlink(missing_ok=True)

    def read(self, round: int, where: torch.device) -> dict[str, Tensor]:
        """Read a stored round, and check that it is what was written."""
        path = self._path(round)
        try:
            with safe_open(path, framework="pt") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                expected = (file.metadata() or {}).get("sha256")
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{path} cannot be read: {error}; delete it to go on from an older one"
            ) from None
        if digest(found) != expected:
            raise InputError(f"{path} is damaged; delete it to go on from an older one")
        return {name: tensor.to(where) for name, tensor in found.items()}

    def kept(self, split: int, batch: int, given: Tensor | None) -> Tensor:
        """Return a batch of an evaluation set; the server sends it once, and it is kept."""
        path = self.folder / f"set-{split}-{batch:05d}.safetensors"
        try:
            if given is not None:
                self._place({"inputs": given}, path)
                return given
            with safe_open(path, framework="pt") as file:
                found: Tensor = file.get_tensor("inputs")
        except (OSError, SafetensorError) as error:
            raise Unavailable(f"cannot keep {path}: {error}; make room, and start the device again") from None
        return found

    def _place(self, tensors: dict[str, Tensor], final: Path, **metadata: str) -> None:
        """Write a file that is there as a whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".draft-*"):  # by a process that was killed
            left.unlink(missing_ok=True)
        with placed(final, self.folder / f".draft-{os.getpid()}") as draft:
            save_file(tensors, draft, metadata=metadata)

    def _files(self) -> dict[int, Path]:
        found = {path.stem.removeprefix("round-"): path for path in self.folder.glob("round-*.safetensors")}
        return {int(number): path for number, path in found.items() if number.isdecimal()}

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:06d}.safetensors"


def metadata_of(path: Path) -> dict[str, str]:
    """Return what a file says of itself, nothing if it cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        sha.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
