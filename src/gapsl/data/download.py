"""Where dataset files are looked for, and a download that resumes where it stopped and is checked."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gapsl.common.errors import InputError, Unavailable
from gapsl.common.files import file_lock

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in total if known

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0  # for connecting and for every read
ATTEMPTS = 3  # in a row without receiving a byte
PAUSE_SECONDS = 1.0  # before the second attempt; doubles with each further one


@dataclass(frozen=True)
class Places:
    """The folders of one search, first to last, and whether a missing file may be downloaded."""

    data_dir: Path | None = None
    may_download: bool = True
    progress: Progress | None = None

    @property
    def folders(self) -> tuple[Path, ...]:
        """The user's folder, `$GAPSL_DATA`, then the cache; those that are set."""
        named = os.environ.get("GAPSL_DATA")
        cache = Path("~/.cache/gapsl").expanduser()
        given = (self.data_dir, Path(named).expanduser() if named else None, cache)
        return tuple(dict.fromkeys(folder for folder in given if folder is not None))

    def find(self, *names: str, also: Iterable[Path] = ()) -> Path | None:
        """Return the first path that exists: all names in a folder before the next folder."""
        for folder in (*self.folders, *also):
            for name in names:
                if (folder / name).exists():
                    return folder / name
        return None

    def fetch(self, url: str, name: str, md5: str) -> Path:
        """Download a file that was not found into the first folder that can be written."""
        searched = ", ".join(str(folder) for folder in self.folders)
        if not self.may_download:
            raise InputError(
                f"{name} is not in {searched} and downloading is off; get it from {url} and put it in one of "
                "these folders, or allow the download"
            )
        for folder in self.folders:
            target = folder / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            if os.access(target.parent, os.W_OK):
                return download(url, target, md5=md5, progress=self.progress)
        raise InputError(f"none of {searched} can be written; name a writable folder with GAPSL_DATA")


def download(
    url: str, target: Path, *, md5: str, progress: Progress | None = None, pause: float = PAUSE_SECONDS
) -> Path:
    """Fetch a file into `target`; an interrupted one continues from its `.part` next time."""
    part = target.with_name(target.name + ".part")
    with file_lock(target.with_name(target.name + ".lock")):  # devices of one machine ask for the same file
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
            raise Unavailable(
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
