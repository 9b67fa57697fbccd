"""A party's files in one archive, to carry to its machine."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.network.tls.changes import write_new


def check_free(path: Path, *, force: bool) -> None:
    """Refuse a path where an archive cannot be written, or would overwrite something."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}; make it, or choose another place with --out")
    if path.is_dir() or (path.exists() and not force):
        raise InputError(
            f"{path} exists already; choose another with --out, or overwrite a file with --force"
        )


def pack(name: str, files: Iterable[Path], path: Path) -> None:
    """Write an archive with a folder of these files, all of them for their owner's eyes only."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
        tar.addfile(folder)
        for file in files:
            data = file.read_bytes()
            member = tarfile.TarInfo(f"{name}/{file.name}")
            member.size, member.mode, member.mtime = len(data), 0o600, int(file.stat().st_mtime)
            tar.addfile(member, io.BytesIO(data))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            write_new(draft, archive.getvalue(), mode=0o600)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another with --out") from None
