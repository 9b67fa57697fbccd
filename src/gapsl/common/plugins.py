"""Code of other people: packages that announce methods, models, datasets or observers, and named files.

A plugin runs in this process with all rights of its user: name or install only code that you trust. A run's
folder never names one that is loaded by itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from gapsl.common.errors import InputError
from gapsl.common.reading import SMALL, read_bytes

VARIABLE = "GAPSL_PLUGINS"  # what was named here, for the processes that this one starts


def use_plugins(names: Iterable[str]) -> None:
    """Load plugins now, and in every process that this one starts."""
    known = named()
    for name in names:
        path = Path(name)
        place = str(path.resolve()) if is_file(name) else name
        load_plugin(place)
        if place not in known:
            known.append(place)
    os.environ[VARIABLE] = os.pathsep.join(known)


def named() -> list[str]:
    """Return the plugins that were named, here or by who started this process."""
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def load_named() -> None:
    """Load the plugins that were named; those that are loaded already are left alone."""
    for name in named():
        load_plugin(name)


def load_plugin(name: str) -> ModuleType:
    """Import a file or a module, which registers what it brings."""
    try:
        return _load_file(Path(name)) if is_file(name) else importlib.import_module(name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            raise InputError(
                f"there is no plugin {name!r}: neither a file ending in .py nor an installed module"
            ) from None
        raise InputError(f"the plugin {name} needs a module that is not installed: {error.name}") from None
    except Exception as error:
        raise InputError(f"the plugin {name} does not load: {type(error).__name__}: {error}") from error


def is_file(name: str) -> bool:
    """Say whether a plugin is named as a file rather than as a module."""
    return name.endswith(".py") or os.sep in name


def _load_file(path: Path) -> ModuleType:
    module = f"gapsl_plugin_{path.stem}"
    loaded = sys.modules.get(module)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    if not path.is_file():
        raise InputError(f"there is no plugin file {path}")
    read_bytes(path, SMALL)  # raises, where Python would try to read any amount
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no plugin: a file of Python code ends in .py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[module] = found
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[module]
        raise
    return found


def announced(group: str) -> Iterator[tuple[str, Any]]:
    """Yield what installed packages announce under a group, by name; what does not load is warned of."""
    for entry in entry_points(group=group):
        try:
            yield entry.name, entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist is not None else "a package"
            warnings.warn(
                f"{entry.name!r} of {package} ({group}) does not load and is left out: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
