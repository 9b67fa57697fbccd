"""Reading what somebody else may have made: never without end, and never from what will not answer."""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path
from typing import BinaryIO

SMALL = 2**20  # bytes of what people write: settings, plugins
LARGE = 2**30  # of what programs write: results, partitions, states
PIPE_SECONDS = 60.0  # that a pipe may take to say its first word


def open_file(path: Path) -> BinaryIO:
    """Open a file to read, and nothing that may be waited for, or read, without end."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return file


def read_bytes(path: Path, limit: int = LARGE) -> bytes:
    """Return what is in a file; an OSError says why not."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise _too_large(path, limit)
        return file.read()


def read_given(path: Path, limit: int) -> bytes:
    """Return what is in a file that a person names, which may be a pipe, as of `<(...)`."""
    with open(path, "rb", opener=_without_waiting) as pipe:
        if not stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode):
            return read_bytes(path, limit)
        if not select.select([pipe], [], [], PIPE_SECONDS)[0]:
            raise OSError(errno.ETIMEDOUT, "nobody writes to this pipe", str(path))
        os.set_blocking(pipe.fileno(), True)
        data = pipe.read(limit + 1)
    if len(data) > limit:
        raise _too_large(path, limit)
    return data


def _too_large(path: Path, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {limit >> 20} MiB", str(path))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: Path, limit: int = LARGE, errors: str = "strict") -> str:
    """Return the same as text."""
    return read_bytes(path, limit).decode(errors=errors)


def read_end(path: Path, limit: int) -> list[str]:
    """Return the lines at the end of a log, as many as fit; an OSError says why not."""
    with open_file(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
        return file.read(limit).decode(errors="replace").splitlines()
