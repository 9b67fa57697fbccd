"""Where dataset files are looked for, and where a download goes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.data.download import Progress, download


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
