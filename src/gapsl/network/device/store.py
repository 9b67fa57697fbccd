"""A device's own checkpoints: its client-side model lives nowhere else."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.files import unwritable
from gapsl.common.tensors import CANNOT_STORE, Rounds, digest, place_tensors, read_tensors, said_by
from gapsl.device.model_info import ModelInfo
from gapsl.network.protocol import wire_pb2 as wire

KEPT = 3  # the server may be one checkpoint behind, and the newest may be the one that was being written
OLDER = "delete it to go on from an older one"


class Store:
    """The checkpoints of one device in one run, a file for each round, there as a whole or not at all."""

    def __init__(self, folder: Path, owner: str = "") -> None:
        self.folder, self._owner = folder, owner
        self._rounds = Rounds(folder, ".safetensors")

    def check(self) -> None:
        """Refuse a folder that cannot be written, or is another's, before anything is trained for it."""
        for path in self._rounds.found().values():
            if (owner := said_by(path).get("owner", self._owner)) != self._owner:
                raise InputError(f"{path} is of {owner}, not of {self._owner}; put it back where it was")
        try:
            self._rounds.tidy()
            place_tensors(self.folder / "writable.safetensors", {})
            (self.folder / "writable.safetensors").unlink()
        except OSError as error:
            raise unwritable(self.folder, error, "--state") from None

    def describe(self, info: ModelInfo) -> None:
        """Keep what the model needs to be used when the run is over."""
        try:
            info.save(self.folder)
        except OSError as error:
            raise Unavailable(
                f"cannot write to {self.folder}: {error}; make room, and start the device again"
            ) from None

    def stored(self) -> list[wire.Stored]:
        """Return what can be restored, ascending; what cannot be read is left out."""
        found = {round: said_by(path).get("generation", "") for round, path in self._rounds.found().items()}
        return [wire.Stored(round=r, generation=int(g)) for r, g in found.items() if g.isdecimal()]

    def write(self, round: int, generation: int, tensors: dict[str, Tensor]) -> None:
        """Store a round; a crash at any moment leaves the others as they were."""
        path, said = self._rounds.path(round), {"generation": str(generation), "owner": self._owner}
        self._rounds.tidy()
        try:
            place_tensors(path, tensors, **said, sha256=digest(tensors))
        except CANNOT_STORE as error:
            raise Unavailable(
                f"cannot write {path}: {error}; make room, and start the device again"
            ) from None
        self._rounds.prune(KEPT)

    def forget_after(self, round: int) -> None:
        """Drop what was stored after a round that the run has gone back to."""
        self._rounds.forget_after(round)

    def read(self, round: int, where: torch.device) -> dict[str, Tensor]:
        """Read a stored round, and check that it is what was written."""
        return read_tensors(self._rounds.path(round), where, checked=True, way_out=OLDER)

    def kept(self, split: int, batch: int, given: Tensor | None) -> Tensor:
        """Return a batch of an evaluation set; the server sends it once, and it is kept."""
        path = self.folder / f"set-{split}-{batch:05d}.safetensors"
        try:
            if given is not None:
                place_tensors(path, {"inputs": given})
            return read_tensors(path)["inputs"] if given is None else given
        except (*CANNOT_STORE, InputError) as error:
            raise Unavailable(f"cannot keep {path}: {error}; make room, and start the device again") from None
