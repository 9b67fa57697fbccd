"""A run's folder: settings, environment, partition, one record a round, result and checkpoints."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from gapsl.common.errors import InputError
from gapsl.common.files import fsync_folder, locked, unwritable, write_json, write_text
from gapsl.common.reading import read_bytes
from gapsl.device import model_info
from gapsl.run.config import Config, make_config, read_yaml
from gapsl.run.environment import describe_environment
from gapsl.run.records import NewerSchema, RoundRecord, RunResult


class RunFolder:
    """Where one run's files are, and how they are read and written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.quoted = shlex.quote(str(path))  # for commands that somebody may copy
        self.config_file = path / "config.yaml"
        self.partition_file = path / "partition.json"
        self.records_file = path / "records.jsonl"
        self.result_file = path / "result.json"
        self.checkpoints = path / "checkpoints"
        self.environment_file = path / "environment.json"
        self.model_file = path / model_info.NAME
        # Of a run whose devices are elsewhere: how it goes over the network, what it knows of them, its name,
        # and who of them was told that it is over.
        self.network_file = path / "network.yaml"
        self.fleet_file = path / "fleet.json"
        self.name_file = path / "run"
        self.connected_file = path / "connected"  # who is, while it is served
        self.metrics_file = path / "metrics"  # where the live page asks
        self.told_file = path / "told"
        self.address_file, self.security_file = path / "address", path / "security"

    @property
    def go_on(self) -> str:
        """The command that goes on with the run."""
        served = self.network_file.exists()
        return f"gapsl serve --out {self.quoted}" if served else f"gapsl resume {self.quoted}"

    def network(self) -> Mapping[str, Any] | None:
        """Return how the run goes over the network, as it is stored; None if it does not."""
        return read_yaml(self.network_file) if self.network_file.exists() else None

    def check_free(self) -> None:
        """Refuse a folder that has a run, or anything else, in it."""
        try:
            self._check_free()
        except OSError as error:  # a name too long, a folder that may not be read
            raise unwritable(self.path, error, "--out") from None

    def _check_free(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; choose another folder with --out")
        if self.config_file.exists():
            raise InputError(
                f"{self.path} has a run in it already; go on with it by: {self.go_on} - "
                "or choose another folder with --out"
            )
        if self.path.is_dir() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise InputError(
                f"{self.path} is not empty and has no run in it; choose another folder with --out"
            )

    @staticmethod
    def create(path: Path, config: Config, custom: Mapping[str, str]) -> RunFolder:
        """Start a run in a folder that has none; `custom` names the objects a caller brought."""
        folder = RunFolder(path)
        folder.check_free()
        if config.extended_to is not None:
            raise InputError("extended_to is for a run that exists (gapsl resume --rounds N); set rounds = N")
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder._write_config(config, custom)
            write_json(folder.environment_file, describe_environment())
        except OSError as error:
            raise unwritable(path, error, "--out") from None
        return folder

    def extend(self, config: Config, custom: Mapping[str, str]) -> None:
        """Let a run go on beyond its end: its settings say so from now on, its result is an earlier one."""
        done = self.result()
        if done is not None:  # first: a run without a result goes on, whatever happens to the other file
            self.result_file.replace(self.path / f"result-{done.rounds:06d}.json")
            self.told_file.unlink(missing_ok=True)
        self._write_config(config, custom)

    def _write_config(self, config: Config, custom: Mapping[str, str]) -> None:
        write_text(self.config_file, yaml.safe_dump(config.resolved(custom), sort_keys=False))

    @staticmethod
    def open(path: Path) -> RunFolder:
        """Open the folder of a run that was started before."""
        folder = RunFolder(path)
        if os.path.isfile(path):
            raise InputError(f"{path} is a file; give the folder of a run")
        if not os.path.isfile(folder.config_file):  # unlike a Path, it minds no name that is too long
            what = f"{path} has no run in it (no config.yaml)"
            if not os.path.lexists(path):
                what = f"there is no folder {path}; check the path"
            raise InputError(f"{what}; start one with: gapsl train --out {folder.quoted}")
        folder._check_kinds()
        return folder

    def _check_kinds(self) -> None:
        """Refuse what is no file where a run has one: it could be neither read nor replaced."""
        for name, path in vars(self).items():
            if name.endswith("_file") and os.path.lexists(path) and not os.path.isfile(path):
                raise InputError(f"{path} is no file; put it back from a copy of the folder, or remove it")

    def settings(self) -> dict[str, Any]:
        """Return the run's settings as its file has them, or say what to do about one that is damaged."""
        try:
            values = read_yaml(self.config_file)
        except InputError as error:
            raise InputError(f"{error}; put it back from a copy of the folder") from None
        if "method" not in values:
            raise InputError(
                f"{self.config_file} is damaged: it names no method; put it back from a copy of the folder"
            )
        return values

    def config(self) -> tuple[Config, dict[str, str]]:
        """Return the run's settings, and the names of the objects it was given from Python."""
        values = self.settings()
        custom = values.pop("custom", {})
        return make_config(values), dict(custom)

    def locked(self) -> AbstractContextManager[None]:
        """Keep two processes from training in one folder; the lock ends with the process."""
        busy = f"another process is training in {self.path}; wait for it or stop it"
        return locked(self.path, "--out", busy)

    def append(self, record: RoundRecord) -> None:
        """Add a round's record."""
        with self.records_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.to_dict(), allow_nan=False) + "\n")

    def records(self) -> Iterator[RoundRecord]:
        """Read the records; a last line cut short by a crash is left out."""
        if not self.records_file.is_file():
            return
        with self.records_file.open("rb") as file:
            for whole, line in enumerate(file):
                try:
                    record = RoundRecord.from_line(line)
                except (ValueError, RecursionError) as error:
                    if line.endswith(b"\n") or line.strip(b"\0")[:1] not in (b"", b"{"):
                        where = f"{self.records_file} is damaged in line {whole + 1}: {error}"
                        raise InputError(f"{where}; {self._way_out(whole)}") from None
                    return
                yield record

    def check_records(self, round: int) -> None:
        """Refuse records that lack one of the first rounds, which a checkpoint is to be gone on from."""
        recorded = [record.round for record in self.records()][:round]
        if recorded != list(range(1, round + 1)):
            whole = next((i for i, found in enumerate(recorded) if found != i + 1), len(recorded))
            raise InputError(
                f"{self.records_file} lacks rounds that its checkpoints have: {self._way_out(whole)}"
            )

    def _way_out(self, whole: int) -> str:
        """Say what to do with a run of whose records only the first ones are whole."""
        if self.result_file.exists():
            return "its run is finished, result and weights are there; put it back from a copy of the folder"
        # A run over the network has devices with checkpoints of their own, which would go with it.
        if self.network_file.exists() or not whole:
            return "put it back from a copy of the folder, or start a new run with another --out"
        return (
            "put it back from a copy of the folder, or delete what it has after round "
            f"{whole}, and the checkpoints after that"
        )

    def sync_records(self) -> None:
        """Make the records survive a power cut, so that no checkpoint is newer than they are."""
        if self.records_file.is_file():
            with self.records_file.open("rb+") as file:
                os.fsync(file.fileno())
            fsync_folder(self.path)

    def forget_after(self, round: int) -> list[RoundRecord]:
        """Drop the records of rounds that will be trained again; returns those that stay."""
        kept = [record for record in self.records() if record.round <= round]
        write_text(self.records_file, "".join(json.dumps(record.to_dict()) + "\n" for record in kept))
        return kept

    def result(self) -> RunResult | None:
        """Return the finished run's result, None if it has not finished."""
        return read_result(self.result_file) if self.result_file.exists() else None

    def write_result(self, result: RunResult) -> None:
        """Write the result; a run with one is finished."""
        write_json(self.result_file, result.to_dict())


def read_result(path: Path) -> RunResult:
    """Read a result file, or say why not."""
    try:
        return RunResult.from_dict(json.loads(read_bytes(path)))
    except NewerSchema as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not a result of gapsl: {error}; in the folder of a run, delete it, and gapsl resume "
            "makes it again from the last checkpoint"
        ) from None
