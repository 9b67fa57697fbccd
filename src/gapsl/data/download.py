"""A download that resumes where it stopped and is not there until its checksum is right."""

from __future__ import annotations

import hashlib
import http.client
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gapsl.common.errors import InputError

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in total if known

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0  # for connecting and for every read
ATTEMPTS = 3  # in a row without receiving a byte
PAUSE_SECONDS = 1.0  # before the second attempt; doubles with each further one


def download(
    url: str, target: Path, *, md5: str, progress: Progress | None = None, pause: float = PAUSE_SECONDS
) -> Path:
    """Fetch a file into `target`; an interrupted one continues from its `.part` next time."""
    part = target.with_name(target.name + ".part")
    with _locked(target.with_name(target.name + ".lock")):
        if target.exists():  # another process fetched it while this one waited
            return target
        _receive_all(url, part, target, progress, pause)
        found = file_md5(part)
        if found != md5:
            part.unlink()
            raise InputError(
                f"{url} has md5 {found}, not {md5}; removed. Run again, or put the file at {target}"
            )
        part.replace(target)
    return target


def file_md5(path: Path) -> str:
    """Return the md5 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive_all(url: str, part: Path, target: Path, progress: Progress | None, pause: float) -> None:
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _receive(url, part, before, progress):
                return
            reason = "the connection closed early"
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing after what we have: complete, or not this file at all
                return
            reason = f"HTTP {error.code} {error.reason}"
            if error.code < 500:
                failures = ATTEMPTS
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        gained = part.exists() and part.stat().st_size > before
        failures = 0 if gained else failures + 1
        if failures >= ATTEMPTS:
            raise InputError(
                f"cannot download {url} ({reason}); run again later, or put the file at {target}"
            )
        time.sleep(pause * 2 ** max(failures - 1, 0))


def _receive(url: str, part: Path, start: int, progress: Progress | None) -> bool:
    """Append what one connection gives to the part; return whether that was all of it."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != 206:  # the server ignored the range and sends the whole file
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        done = start
        with part.open("ab" if start else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    return total is None or done == total


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time through: the devices of one machine may all ask for the same file."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    # The file stays: to unlink it would let a third process lock a new one while a second holds this.
