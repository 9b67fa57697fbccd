"""Runs of a second or less, trained once, whose models are taken out of them."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from quick import QUICK

import gapsl

LEARNS = {
    "rounds": 40,
    "server_optimizer": {"lr": 0.1},
    "device_optimizer": {"lr": 0.05},
    "partition": "dirichlet:1",
}


@cache
def _root() -> Path:
    return Path(tempfile.mkdtemp(prefix="gapsl-small-runs-"))


@cache
def run_of(method: str, **settings: Any) -> Path:
    """Return the folder of a finished run, which nobody may change."""
    folder = _root() / "-".join([method, *(f"{name}={value}" for name, value in settings.items())])
    gapsl.train(method=method, out=folder, **{**QUICK, **LEARNS, **settings})
    return folder


def copy_of(run: Path, to: Path) -> Path:
    """Return a copy of a run that may be damaged."""
    return Path(shutil.copytree(run, to))
