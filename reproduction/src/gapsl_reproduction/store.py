"""Results of finished runs, a small JSON file each, found by the key of their settings."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gapsl.common.errors import InputError
from gapsl.common.files import locked, plain, write_text
from gapsl_reproduction.runs import key_of

SCHEMA = 1
DAMAGED = ".damaged"  # what a file that cannot be used is renamed to

Result = Mapping[str, Any]


class Store:
    """The results of one scale, in a folder's `runs/`.

    With `mend`, a file that cannot be used is set aside, so that its run is done again; without, it is
    only warned of.
    """

    def __init__(
        self, folder: Path, *, mend: bool = False, warn: Callable[[str], None] = warnings.warn
    ) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self._mend, self._warn = mend, warn
        self._known: dict[str, Result] = {}
        self._told: set[str] = set()

    def path(self, key: str) -> Path:
        """Return where a run's result is, or would be."""
        return self.runs / f"{key}.json"

    def get(self, key: str) -> Result | None:
        """Return a run's result, None if there is none that can be used."""
        if key not in self._known:
            path = self.path(key)
            try:
                self._known[key] = read(path)
            except FileNotFoundError:
                return None
            except ValueError as error:
                self._damaged(path, str(error))
                return None
        return self._known[key]

    def others(self, known: Collection[str]) -> list[str]:
        """Return the names of result files that are of none of these runs."""
        return sorted(path.name for path in self.runs.glob("*.json") if path.stem not in known)

    def put(self, result: Result) -> None:
        """Store a result, whole or not at all."""
        key = str(result["key"])
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            write_text(self.path(key), as_text(result))
        except OSError as error:
            raise InputError(
                f"cannot write to {self.runs}: {error.strerror or error}; what was stored is not damaged: "
                "make room, or choose another --results, and repeat the command"
            ) from None
        self._known[key] = read(self.path(key))

    def locked(self) -> AbstractContextManager[None]:
        """Keep two processes from doing the same runs; the lock ends with the process."""
        busy = (
            f"another gapsl reproduce is working on {self.folder}; wait for it and repeat the command then: "
            "what it has finished is not done again"
        )
        return locked(self.folder, "--results", busy)

    def _damaged(self, path: Path, reason: str) -> None:
        if self._mend:
            aside = path.with_name(path.name + DAMAGED)
            path.replace(aside)
            self._warn(f"{path} {reason}; it is now {aside.name} and its run is done again")
        elif path.name not in self._told:
            self._told.add(path.name)
            self._warn(f"{path} {reason}; gapsl reproduce does its run again")


def read(path: Path) -> Result:
    """Read a result file; what is wrong with it is a ValueError."""
    text = path.read_bytes()
    try:
        result = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(result, dict) or "schema" not in result:
        raise ValueError("is no result of gapsl reproduce")
    if result["schema"] != SCHEMA:
        raise ValueError(f"has schema {result['schema']}, this gapsl reads {SCHEMA}")
    settings = result.get("config")
    if not isinstance(settings, dict) or not result.get("key") == path.stem == key_of(settings):
        raise ValueError("has a key that is not that of its settings")
    if "final" not in result and "failed" not in result:
        raise ValueError("has neither a result nor the reason for a failure")
    return result


def as_text(result: Result) -> str:
    """Return a result as JSON of a line an entry: short, and a difference shows where it is."""
    lines = []
    for name, value in plain(result).items():
        if isinstance(value, list) and value and isinstance(value[0], dict | list):
            inner = ",\n".join(" " + _line(item) for item in value)
            lines.append(f'"{name}": [\n{inner}\n]')
        else:
            lines.append(f'"{name}": {_line(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
