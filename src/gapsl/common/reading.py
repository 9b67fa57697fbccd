"""Reading what somebody else may have made: never without end, and never from what will not answer."""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path

SMALL = 2**20  # bytes of what people write: settings, plugins
LARGE = 2**30  # of what programs write: results, partitions, states
PIPE_SECONDS = 60.0  # that a pipe may take to say its first word


def read_bytes(path: Path, limit: int = LARGE, *, pipes: bool = False) -> bytes:
    """Return what is in a file, or a pipe if that will do; an OSError says why not."""
    with open(path, "rb", opener=_without_waiting) as file:
        mode = os.fstat(file.fileno()).st_mode
        if pipes and stat.S_ISFIFO(mode):  # as of `<(...)`
            if not select.select([file], [], [], PIPE_SECONDS)[0]:
                raise OSError(errno.ETIMEDOUT, "nobody writes to this pipe", str(path))
            os.set_blocking(file.fileno(), True)
        elif not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit >> 20} MiB", str(path))
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: Path, limit: int = LARGE, errors: str = "strict") -> str:
    """Return the same as text."""
    return read_bytes(path, limit).decode(errors=errors)


def read_end(path: Path, limit: int) -> list[str]:
    """Return the lines at the end of a log, as many as fit; an OSError says why not."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - limit))
        return file.read(limit).decode(errors="replace").splitlines()
