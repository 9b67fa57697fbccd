"""Where certificates and keys lie: in the authority's folder, and in a folder carried to a machine."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gapsl.network.tls.names import SERVERS, check_name

FOLDER = Path("certs")  # where they are looked for and made by default
CA, CA_KEY = "ca.pem", "ca-key.pem"
REVOKED = "revoked.pem"
ISSUED = "issued.json"
DEVICES = "devices"


def option(folder: Path) -> str:
    """Return what a command of `gapsl certs` needs to find this folder, for messages that name one."""
    return "" if folder == FOLDER else f" --folder {folder}"


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
