"""What the commands of a run over the network share: certificates, log lines, settings."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gapsl.common.errors import InputError

Certs = Annotated[Path | None, typer.Option(help="The folder with the certificates; default: certs.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text, also beyond this machine: anybody may listen in.")
]
LogFormat = Annotated[str, typer.Option("--log", help="text, or json: one object per line.")]
Names = Annotated[
    str | None, typer.Option(help="The devices, separated by commas; default: device-0, device-1, ...")
]

log = logging.getLogger("gapsl")


class JsonLines(logging.Formatter):
    """A line of JSON for each message, for whoever collects them."""

    for_machines = True

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, what is said, and the numbers in it under names of their own."""
        return json.dumps(
            {
                "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
                "level": record.levelname.lower(),
                "message": record.getMessage(),
                **getattr(record, "fields", {}),
            }
        )


def start_log(kind: str) -> None:
    """Write log lines to standard error, as text or JSON."""
    if kind not in ("text", "json"):
        raise InputError(f"unknown --log {kind!r}; choose text or json")
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonLines() if kind == "json" else text)
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def split_names(names: str | None) -> tuple[str, ...]:
    """Return the names in a list separated by commas."""
    return tuple(name.strip() for name in names.split(",")) if names else ()


def given(**options: Any) -> Mapping[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
