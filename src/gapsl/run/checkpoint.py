"""Checkpoints: a folder with safetensors and one JSON file, there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.files import fsync_folder, plain, write_json
from gapsl.models.half import Half, read_tensors, write_tensors

SCHEMA = 1
KIND = "gapsl-checkpoint"
PREFIX = "round-"  # of a checkpoint's folder


@dataclass(frozen=True)
class Checkpoint:
    """A stored round: where it is, and what its JSON file says."""

    folder: Path
    round: int
    state: Mapping[str, Any]

    def load_half(self, name: str, half: Half) -> None:
        """Restore a half from its file."""
        try:
            half.load(read_tensors(self.folder / f"{name}.safetensors", half.parameters[0].device))
        except (KeyError, RuntimeError, ValueError) as error:
            raise InputError(
                f"checkpoint {self.folder} does not fit this model: {error}; "
                "it was written by a run with other settings"
            ) from None


class Checkpoints:
    """The checkpoints of a run; the newest few are kept."""

    def __init__(self, folder: Path, *, run: str, keep: int) -> None:
        self.folder, self.run, self.keep = folder, run, keep
        self.keep_start = False  # whether round 0, which any device can go back to, is kept as well

    def write(self, round: int, halves: Mapping[str, Half], fleet: Any, state: Mapping[str, Any]) -> Path:
        """Store a round; a crash at any moment leaves the older checkpoints as they were."""
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / self._name(round)
        draft = self.folder / f".draft-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            for name, half in halves.items():
                write_tensors(draft / f"{name}.safetensors", half.tensors())
            fleet.save(draft, round)
            files = {path.name: _sha256(path) for path in sorted(draft.iterdir())}
            for name in files:
                with (draft / name).open("rb+") as file:
                    os.fsync(file.fileno())
            header = {"kind": KIND, "schema": SCHEMA, "run": self.run, "round": round}
            content = plain({**header, "state": state, "files": files})
            write_json(draft / "state.json", {**content, "sha256": _digest(content)})
            shutil.rmtree(final, ignore_errors=True)
            draft.rename(final)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise Unavailable(
                f"could not write checkpoint {final}: {error}; make room, and go on with the run"
            ) from None
        fsync_folder(self.folder)
        for old in self.found()[: -self.keep]:
            if not (self.keep_start and old.name == self._name(0)):
                shutil.rmtree(old, ignore_errors=True)
        return final

    def found(self) -> list[Path]:
        """Return the folders of all checkpoints, oldest first."""
        return _folders(self.folder)

    def tidy(self) -> None:
        """Remove what a killed process left half written."""
        for draft in self.folder.glob(".draft-*"):
            shutil.rmtree(draft, ignore_errors=True)

    def forget_after(self, round: int) -> None:
        """Remove what was stored after a round that the run has gone back to."""
        for later in [path for path in self.found() if round_of(path) > round]:
            shutil.rmtree(later, ignore_errors=True)

    @staticmethod
    def _name(round: int) -> str:
        return f"{PREFIX}{round:06d}"

    def latest(self) -> Checkpoint | None:
        """Read and check the newest checkpoint; None if there is none yet."""
        found = self.found()
        return self.read(found[-1]) if found else None

    def read(self, folder: Path) -> Checkpoint:
        """Read a checkpoint's JSON file and check that every file is what was written."""
        try:
            header = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            kind, schema, files = header["kind"], header["schema"], dict(header["files"])
            round, run, state = int(header["round"]), header["run"], header["state"]
            expected_digest = header.pop("sha256", None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"checkpoint {folder} is damaged: {error}; {way_out(folder)}") from None
        if kind != KIND or schema != SCHEMA:
            raise InputError(
                f"checkpoint {folder} has format {kind!r} version {schema}, this gapsl reads {SCHEMA}; "
                "use the gapsl version that wrote it (environment.json names it)"
            )
        if run != self.run:
            raise InputError(
                f"checkpoint {folder} belongs to another run, its settings or data differ; "
                "put back config.yaml and partition.json as they were, or delete it if it was copied here"
            )
        if _digest(header) != expected_digest or folder.name != self._name(round):
            raise InputError(
                f"checkpoint {folder} is damaged: state.json is not what was written; {way_out(folder)}"
            )
        for name, expected in files.items():
            if not (folder / name).is_file() or _sha256(folder / name) != expected:
                raise InputError(
                    f"checkpoint {folder} is damaged: {name} is not what was written; {way_out(folder)}"
                )
        if "calibration" in state:  # written before options were part of the strategy
            state["strategy"]["calibration"] = state.pop("calibration")
        return Checkpoint(folder, round, state)


def _folders(parent: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    found = [path for path in parent.glob(f"{PREFIX}*") if path.name[len(PREFIX) :].isdecimal()]
    return sorted(found, key=round_of)


def round_of(folder: Path) -> int:
    """Return the round after which a checkpoint was written."""
    return int(folder.name.removeprefix(PREFIX))


def way_out(folder: Path) -> str:
    """Say how to go on without a checkpoint that cannot be used."""
    # Only runs over a network have one of round 0, and they do not begin anew by themselves.
    older = [other for other in _folders(folder.parent) if 0 < round_of(other) < round_of(folder)]
    if older:
        return f"delete {folder} to go on from the one after round {round_of(older[-1])}"
    return f"there is none before it: put {folder} back from a copy, or start a new run"


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
