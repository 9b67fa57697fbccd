"""Several files of a folder changed together: after a crash, all of them are new or none is.

New files are written beside their places, in a draft. The change is made in the moment in which the draft is
renamed to `.pending`; what is pending is moved to its places, by whoever opens the folder next if need be.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.common.files import fsync_folder

PENDING = ".pending"
_DRAFT = ".draft-"


class Draft:
    """New files of a folder, which nobody sees before all of them are there."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def write(self, name: str, data: bytes, *, secret: bool = False) -> None:
        """Add a file under its path in the folder; a secret is its owner's alone from its first byte on."""
        path = self._place / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_new(path, data, mode=0o600 if secret else 0o644)
        fsync_folder(path.parent)


@contextmanager
def changing(folder: Path) -> Iterator[Draft]:
    """Change files of a folder: all that the draft is given when the block ends well, nothing otherwise."""
    with settled(folder):
        try:
            place = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=folder))
        except OSError as error:
            raise _cannot_write(folder, error) from None
        try:
            yield Draft(place)
            fsync_folder(place)
            place.rename(folder / PENDING)
        except OSError as error:
            raise _cannot_write(folder, error) from None
        finally:
            shutil.rmtree(place, ignore_errors=True)  # nothing is there if it was renamed
        _settle(folder)


@contextmanager
def settled(folder: Path) -> Iterator[None]:
    """Keep others from changing a folder, and finish first what a crash has left."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _settle(folder)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file that does not exist yet; it never has another mode than this."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _settle(folder: Path) -> None:
    pending = folder / PENDING
    try:
        for leftover in folder.glob(f"{_DRAFT}*"):
            shutil.rmtree(leftover)
        if not pending.is_dir():
            return
        fsync_folder(folder)
        for path in sorted(path for path in pending.rglob("*") if path.is_file()):
            place = folder / path.relative_to(pending)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            path.replace(place)
            fsync_folder(place.parent)
        fsync_folder(folder)
        shutil.rmtree(pending)
    except OSError as error:
        raise InputError(
            f"a change of {folder} is not finished: {error.strerror}; when this is mended, "
            f"any command of `gapsl certs` finishes it"
        ) from None


def _cannot_write(folder: Path, error: OSError) -> InputError:
    return InputError(f"cannot write to {folder}: {error.strerror}; nothing was changed")
