"""A device's own checkpoints: its half lives nowhere else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gapsl.errors import InputError
from gapsl.files import fsync_folder

KEPT = 3  # the server may be one checkpoint behind, and the newest may be the one that was being written


class Store:
    """The checkpoints of one device in one run, a file a round, there as a whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rounds(self) -> list[int]:
        """Return the rounds that can be restored, ascending."""
        found = (path.stem.removeprefix("round-") for path in self.folder.glob("round-*.safetensors"))
        return sorted(int(number) for number in found if number.isdecimal())

    def write(self, round: int, tensors: dict[str, Tensor]) -> None:
        """Store a round; a crash at any moment leaves the others as they were."""
        final = self.folder / f"round-{round:06d}.safetensors"
        draft = self.folder / f".draft-{os.getpid()}"
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(plain, draft, metadata={"sha256": digest(plain)})
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            draft.replace(final)
            fsync_folder(self.folder)
        except (OSError, SafetensorError) as error:
            draft.unlink(missing_ok=True)
            raise InputError(
                f"cannot write {final}: {error}; make room, and start the device again"
            ) from None
        for old in self.rounds()[:-KEPT]:
            (self.folder / f"round-{old:06d}.safetensors").unlink(missing_ok=True)

    def read(self, round: int, where: torch.device) -> dict[str, Tensor]:
        """Read a stored round, and check that it is what was written."""
        path = self.folder / f"round-{round:06d}.safetensors"
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


def digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        sha.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
