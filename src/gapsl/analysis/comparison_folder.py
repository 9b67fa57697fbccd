"""The folder of a comparison: in it a folder a run, and the order in which they were asked for."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gapsl.analysis.workers import Job
from gapsl.common.errors import InputError
from gapsl.common.files import unwritable, write_json
from gapsl.common.reading import read_bytes
from gapsl.network.processes import PROCESSES
from gapsl.run.config import Config, differing, preset, presets, sections
from gapsl.run.folder import RunFolder

ORDER = "order.json"  # the names of a comparison's runs, in the order they were asked for


def lay_out(out: Path, jobs: Sequence[Job], custom: Mapping[str, str]) -> None:
    """Make the jobs' folders in `out`.

    A folder that has the same run in it already is gone on with; another run in it is an error.
    """
    if RunFolder(out).config_file.exists():
        raise InputError(f"{out} has a single run in it; choose another folder with --out")
    for job in jobs:
        refuse_other(job, custom)
    earlier = [run for run in runs_in(out, complete=False) if run.path not in {job.folder for job in jobs}]
    for run in earlier:
        before, now = run.config()[0], jobs[0].config
        others = differing(before, now, beyond=compared(before) | compared(now))
        if others:
            raise InputError(
                f"{out} has runs of another comparison in it ({', '.join(others)} differ in "
                f"{run.path.name}); choose another folder with --out"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        # First, so that a folder that is missing after a crash can be told.
        names = [*(run.path.name for run in earlier), *(job.name for job in jobs)]
        write_json(out / ORDER, names)
    except OSError as error:
        raise unwritable(out, error, "--out") from None
    for job in jobs:
        if not RunFolder(job.folder).config_file.exists():
            RunFolder.create(job.folder, job.config, custom)


def refuse_other(job: Job, custom: Mapping[str, str]) -> None:
    """Refuse a job's folder that has anything else in it."""
    folder = RunFolder(job.folder)
    if not folder.config_file.exists():
        folder.check_free()
        return
    before, given = folder.config()
    others = differing(before, job.config)
    others += ["rounds"] if before.extended_to is not None else []
    others += [name for name in sorted({*given, *custom}) if given.get(name) != custom.get(name)]
    if others:
        raise InputError(
            f"{job.folder} has a run with other settings in it ({', '.join(others)} differ); "
            "choose another folder with --out, or repeat the command it was started with"
        )


def compared(config: Config) -> set[str]:
    """Return the settings in which a run may differ from the others of a comparison."""
    of_preset = preset(config.label) if config.label in presets() else {}
    return {"method", "seed", *sections(), *of_preset}


def runs_in(out: Path, *, complete: bool = True) -> list[RunFolder]:
    """Return the runs in a folder: its own if it is a run's, else a comparison's in its order."""
    if RunFolder(out).config_file.is_file():
        return [RunFolder(out)]
    found = {path.parent.name: RunFolder(path.parent) for path in sorted(out.glob("*/config.yaml"))}
    try:
        order = json.loads(read_bytes(out / ORDER))
    except (OSError, ValueError):
        order = []
    missing = [name for name in order if name not in found]
    if missing and complete:
        raise InputError(
            f"{out} was stopped while its folders were made ({', '.join(missing)} missing); "
            "repeat the gapsl compare command it was started with"
        )
    return [found[name] for name in dict.fromkeys([*order, *found]) if name in found]


def some_runs(folder: Path) -> list[RunFolder]:
    """Return the run in a folder, or the runs as far as they are there; refuse a folder without any."""
    if not os.path.lexists(folder):  # unlike a Path, it minds no name that is too long
        raise InputError(f"there is no folder {folder}; check the path")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; give the folder of a run")
    runs = runs_in(folder, complete=False)
    if not runs:
        fleet = (folder / PROCESSES).exists()
        start = "start it with: gapsl fleet up" if fleet else "start one with: gapsl train"
        below = [f"; there are runs in {', '.join(map(str, deeper(folder)))}"] * bool(deeper(folder))
        raise InputError(
            f"{folder} has no run in it (no config.yaml){''.join(below)}; {start} --out "
            f"{shlex.quote(str(folder))}"
        )
    return runs


def deeper(folder: Path) -> list[Path]:
    """Return the folders in a folder that are no runs, but have runs in them: comparisons and fleets."""
    if RunFolder(folder).config_file.is_file():
        return []
    found = {path.parent.parent for path in folder.glob("*/*/config.yaml")}
    return sorted(path for path in found if not RunFolder(path).config_file.is_file())
