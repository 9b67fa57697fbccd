"""`gapsl diagnose`: what is going on in a run, in plain words, and what to try."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from gapsl.analysis.comparison_folder import deeper, some_runs
from gapsl.analysis.diagnose import Run, diagnose, read_run
from gapsl.analysis.diagnose.display import compared, machine_readable, whole
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.common.errors import InputError
from gapsl.common.files import plain
from gapsl.run.folder import RunFolder

SCHEMA = 3


def diagnose_runs(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a comparison's.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    data_dir: running.DataDir = None,
) -> None:
    """Say what is going on in a run, finished or not, and what to try; of several runs in a sentence each."""
    runs = some_runs(folder)
    several = runs[0].path != folder
    read = {run.path: read_if_possible(run, data_dir, tolerant=several) for run in runs}
    if as_json:
        described = [
            machine_readable(found, diagnose(found), path)
            if isinstance(found, Run)
            else {"run": str(path), "error": str(found)}
            for path, found in read.items()
        ]
        say(json.dumps(plain({"schema": SCHEMA, "runs": described}), indent=1, allow_nan=False))
        return
    diagnosed = {path: (run, diagnose(run)) for path, run in read.items() if isinstance(run, Run)}
    if not several:
        (path, (run, findings)), *_ = diagnosed.items()
        lines = whole(run, findings, path, output.width)
    else:
        lines = compared({path.name: found for path, found in diagnosed.items()}, output.width)
    for line in lines:
        output.print(line, highlight=False, soft_wrap=True)
    for path, error in read.items():
        if isinstance(error, InputError):
            say(f"{path.name}: {error}")
    for path in deeper(folder):
        say(f"Not examined: the runs in {path}; for them: gapsl diagnose {shlex.quote(str(path))}")
    if several:
        say(f"For more: gapsl diagnose {runs[0].path}")


def read_if_possible(run: RunFolder, data_dir: str | None, *, tolerant: bool) -> Run | InputError:
    """Read a run's files; in a comparison, one that cannot be read does not keep the others from it."""
    try:
        return read_run(run, data_dir)
    except InputError as error:
        if not tolerant:
            raise
        return error
