"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from gapsl.common.errors import GapslError, InputError, Unavailable

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # which no other name of a folder would help


def unwritable(folder: Path, error: OSError, option: str) -> GapslError:
    """Return what to raise for a folder that cannot be written: an outage, or a name that was ill chosen."""
    if error.errno in NO_ROOM:
        return Unavailable(f"cannot write to {folder}: {error.strerror}; make room, and try again")
    return InputError(f"cannot write to {folder}: {error.strerror or error}; choose another {option}")


@contextmanager
def room_needed(path: Path, go_on: str) -> Iterator[None]:
    """Say in a sentence what to do if a run's files cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        raise Unavailable(
            f"could not write to {path}: {error.strerror}; nothing that was stored is damaged: "
            f"make room and go on with: {go_on}"
        ) from None


@contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Let one process at a time through, by the lock of a file or folder; it ends with the process.

    Without `wait`, BlockingIOError is raised if somebody is inside.
    """
    made = 0 if path.is_dir() else os.O_CREAT | os.O_RDWR
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | made, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        # The file stays: to unlink it would let a third process lock a new one while a second holds this.
        os.close(descriptor)


@contextmanager
def locked(folder: Path, option: str, busy: str) -> Iterator[None]:
    """Keep two processes from working in a folder."""
    with ExitStack() as lock:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(file_lock(folder / ".lock", wait=False))
        except BlockingIOError:
            raise Unavailable(busy) from None
        except OSError as error:
            raise unwritable(folder, error, option) from None
        yield


@contextmanager
def placed(path: Path, draft: Path) -> Iterator[Path]:
    """Let a draft be written, which then is the file: whole, and after a power cut too, or not at all."""
    if path.exists() and not path.is_file() and not path.is_dir():  # root could replace /dev/null
        raise FileExistsError(errno.EEXIST, "a device or a pipe is there, no file", str(path))
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


@contextmanager
def drafted(path: Path, data: bytes, *, mode: int = 0o666) -> Iterator[Path]:
    """Write a file beside its place, which it takes when the block ends well; it never has another mode."""
    with placed(path, path.with_name(f".{path.name}.{os.getpid()}")) as draft:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # a full disk says so here at the latest
        yield draft


def write_bytes(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file atomically."""
    with drafted(path, data, mode=mode):
        pass


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(plain(value), indent=1, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Return a value as strict JSON has it: keys are strings, and what is not a number is null.

    Of a dataclass the fields are left out that have their default.
    """
    if dataclasses.is_dataclass(value):
        found = ((one, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {one.name: plain(item) for one, item in found if not is_default(one, item)}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def is_default(one: dataclasses.Field[Any], value: Any) -> bool:
    """Say whether a field has the value that it has when nothing is said of it."""
    if isinstance(one.default_factory, type):
        return bool(value == one.default_factory())
    return one.default is not dataclasses.MISSING and bool(value == one.default)


def fsync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
