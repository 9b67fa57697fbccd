"""`gapsl resume`: go on with a run, or with all runs of a comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import gapsl
from gapsl.analysis.compare import default_workers, resume_comparison
from gapsl.analysis.comparison_folder import runs_in
from gapsl.analysis.formats import counted
from gapsl.analysis.progress import Display, RunProgress
from gapsl.cli import compare, running, train
from gapsl.cli.running import output, say
from gapsl.common.errors import InputError
from gapsl.common.interrupt import Interrupt
from gapsl.dashboard.launch import live_page
from gapsl.run.folder import RunFolder


def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a comparison's.")],
    data_dir: running.DataDir = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=10**9, help="Train until so many rounds are done, beyond what was planned."),
    ] = None,
    processes: running.Processes = None,
    fleet: running.FleetKind = None,
    ray_address: running.RayAddress = None,
    workers: running.Workers = None,
    plugin: running.Plugins = None,
    dashboard: running.LivePage = False,
    quiet: running.Quiet = False,
) -> None:
    """Go on from the last checkpoint; the end is the same, bit for bit, as if nothing had happened."""
    display = Display(output, quiet=quiet)
    runs = [] if RunFolder(folder).config_file.exists() else runs_in(folder)
    opened = None if runs else RunFolder.open(folder)
    with live_page(folder, dashboard, say), Interrupt(running.asked_to_stop) as interrupt:
        if opened is None:
            if rounds is not None:
                raise InputError(f"{folder} is a comparison; --rounds extends one run: name its folder")
            if processes is not None or fleet is not None:
                raise InputError(f"{folder} is a comparison; --processes and --fleet are for one of its runs")
            if data_dir is not None:
                os.environ["GAPSL_DATA"] = data_dir  # the workers look there too
            done = resume_comparison(
                folder,
                workers=workers or default_workers(run.config()[0] for run in runs),
                progress=display,
                stop=lambda: interrupt.asked,
            )
            compare.report(done, interrupt)
            return
        config, _ = opened.config()
        before = opened.result()
        if before is not None and rounds in (None, before.rounds):
            done_so_far = counted(before.rounds, "round")
            say(f"{folder} is finished already, with {done_so_far}: there is nothing to do")
        given: dict[str, Any] = {"data_dir": data_dir, "processes": processes}
        given |= {"fleet": fleet, "ray_address": ray_address}
        incidental = {name: value for name, value in given.items() if value is not None}
        with display:
            result = gapsl.resume(
                folder,
                observers=[RunProgress(display, config.method)],
                stop=lambda: interrupt.asked,
                progress=display.download,
                rounds=rounds,
                **incidental,
            )
    train.report(result, folder, interrupt)
