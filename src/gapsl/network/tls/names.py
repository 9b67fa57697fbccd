"""Names of devices, as certificates, files and command lines can carry them."""

from __future__ import annotations

import re

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest

SERVERS = ("server", "parameter-server")

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
