"""Checkpoints: a folder with safetensors and one JSON file, there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.files import fsync_folder, plain, write_json
from gapsl.common.reading import read_bytes
from gapsl.common.tensors import CANNOT_STORE, Rounds, read_tensors, remove, write_tensors
from gapsl.models.part import ModelPart
from gapsl.models.stored import sha256_of

SCHEMA = 1
KIND = "gapsl-checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """A stored round: where it is, and what its JSON file says."""

    folder: Path
    round: int
    state: Mapping[str, Any]

    def load_part(self, name: str, part: ModelPart) -> None:
        """Restore a model and its optimizer from their file."""
        try:
            part.load(read_tensors(self.folder / f"{name}.safetensors", part.parameters[0].device))
        except (KeyError, RuntimeError, ValueError) as error:
            raise InputError(
                f"checkpoint {self.folder} does not fit this model: {error}; "
                "it was written by a run with other settings"
            ) from None


class Checkpoints(Rounds):
    """The checkpoints of a run, a folder for each round; the newest few are kept."""

    def __init__(self, folder: Path, *, run: str, keep: int) -> None:
        super().__init__(folder)
        self.run, self.keep = run, keep  # of "" any run's are read
        self.keep_start = False  # whether round 0, which any device can go back to, is kept as well

    def write(self, round: int, parts: Mapping[str, ModelPart], fleet: Any, state: Mapping[str, Any]) -> Path:
        """Store a round; a crash at any moment leaves the older checkpoints as they were."""
        final, draft = self.path(round), self.draft()
        remove(draft)
        try:
            draft.mkdir(parents=True)
            for name, part in parts.items():
                write_tensors(draft / f"{name}.safetensors", part.tensors())
            fleet.save(draft, round)
            files = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
            for name in files:
                with (draft / name).open("rb+") as file:
                    os.fsync(file.fileno())
            header = {"kind": KIND, "schema": SCHEMA, "run": self.run, "round": round}
            content = plain({**header, "state": state, "files": files})
            write_json(draft / "state.json", {**content, "sha256": _digest(content)})
            remove(final)
            draft.rename(final)
        except CANNOT_STORE as error:
            remove(draft)
            raise Unavailable(
                f"could not write checkpoint {final}: {error}; make room, and go on with the run"
            ) from None
        fsync_folder(self.folder)
        self.prune(self.keep, but=(0,) if self.keep_start else ())
        return final

    def latest(self) -> Checkpoint | None:
        """Read and check the newest checkpoint; None if there is none yet."""
        found = self.found()
        return self.read(max(found)) if found else None

    def read(self, round: int) -> Checkpoint:
        """Read a checkpoint's JSON file and check that every file is what was written."""
        folder = self.path(round)
        try:
            header = json.loads(read_bytes(folder / "state.json"))
            kind, schema, files = header["kind"], header["schema"], dict(header["files"])
            written_after, run, state = int(header["round"]), header["run"], header["state"]
            expected_digest = header.pop("sha256", None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(folder, str(error)) from None
        if kind != KIND or schema != SCHEMA:
            raise InputError(
                f"checkpoint {folder} has format {kind!r} version {schema}, this gapsl reads {SCHEMA}; "
                "use the gapsl version that wrote it (environment.json names it)"
            )
        if self.run and run != self.run:
            raise InputError(
                f"checkpoint {folder} belongs to another run, its settings or data differ; "
                "put back config.yaml and partition.json as they were, or delete it if it was copied here"
            )
        if _digest(header) != expected_digest or written_after != round:
            raise damaged(folder, "state.json is not what was written")
        for name, expected in files.items():
            if not (folder / name).is_file() or sha256_of(folder / name) != expected:
                raise damaged(folder, f"{name} is not what was written")
        if "calibration" in state:  # written before options were part of the strategy
            state["strategy"]["calibration"] = state.pop("calibration")
        return Checkpoint(folder, round, state)


def damaged(folder: Path, why: str) -> InputError:
    """Return what to raise for a checkpoint that cannot be used."""
    return InputError(f"checkpoint {folder} is damaged: {why}; {way_out(folder)}")


def way_out(folder: Path) -> str:
    """Say how to go on without a checkpoint that cannot be used."""
    # Only runs over a network have one of round 0, and they do not begin anew by themselves.
    rounds = {path: round for round, path in Rounds(folder.parent).found().items()}
    older = [round for round in rounds.values() if 0 < round < rounds.get(folder, 0)]
    if older:
        return f"delete {folder} to go on from the one after round {older[-1]}"
    return f"there is none before it: put {folder} back from a copy, or start a new run"


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
