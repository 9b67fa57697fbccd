"""Names of devices, and where the certificates and keys of a name lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest

SERVERS = ("server", "parameter-server")
FOLDER = Path("certs")  # where they are looked for and made by default
CA, CA_KEY = "ca.pem", "ca-key.pem"
REVOKED = "revoked.pem"
ISSUED = "issued.json"
DEVICES = "devices"

_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")  # X.509 allows a common name 64 characters
_RESERVED = {*SERVERS, "ca", "revoked"}  # files of these names lie beside a device's


def why_not_a_name(name: str) -> str | None:
    """Return what is wrong with a device's name, None if nothing is."""
    if not _PATTERN.fullmatch(name):
        return "a name has 1 to 64 characters of A-Z a-z 0-9 . _ - and begins with none of . and -"
    if name.lower() in _RESERVED:
        return f"the names {', '.join(sorted(_RESERVED))} are taken; choose another, like {name.lower()}-1"
    if name.lower().endswith("-key"):
        return "what ends in -key is the file of a key; choose another name"
    return None


def check_server(name: str) -> str:
    """Return a server's name, or refuse it."""
    if name not in SERVERS:
        raise InputError(f"unknown server {name!r}; {nearest(name, SERVERS)}")
    return name


def check_name(name: str) -> str:
    """Return a device's name, or refuse it."""
    reason = why_not_a_name(name)
    if reason is not None:
        raise InputError(f"{name!r} cannot be a device's name: {reason}")
    return name


class Files(NamedTuple):
    """What one party shows and checks others with."""

    ca: Path
    certificate: Path
    key: Path


def authority_files(folder: Path, name: str) -> Files:
    """Return where the authority keeps a party's files."""
    place = folder if name in SERVERS else folder / DEVICES
    return Files(folder / CA, place / f"{name}.pem", place / f"{name}-key.pem")


def files_of(folder: Path, name: str) -> Files:
    """Return a party's files: in the authority's folder, or in one carried to the party's machine."""
    if name not in SERVERS:
        check_name(name)
    kept = authority_files(folder, name)
    if kept.certificate.exists():
        return kept
    return Files(folder / CA, folder / f"{name}.pem", folder / f"{name}-key.pem")


def option(folder: Path) -> str:
    """Return what a command of `gapsl certs` needs to find this folder, for messages that name one."""
    return "" if folder == FOLDER else f" --folder {folder}"
