"""`gapsl compare`: several methods and seeds side by side."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Unpack

import typer

import gapsl
from gapsl.analysis.compare import Comparison, default_workers
from gapsl.analysis.plots import figure
from gapsl.analysis.progress import Display
from gapsl.cli import running
from gapsl.cli.running import complain, output, say
from gapsl.cli.settings import RunOptions, chosen_settings, with_run_options
from gapsl.cli.show import show
from gapsl.common.errors import InputError
from gapsl.common.interrupt import Interrupt
from gapsl.dashboard.launch import live_page

EPILOG = (
    "Example: gapsl compare --methods psl,sfl,gapsl --seeds 0,1,2 --rounds 200 --out runs/b. "
    "Repeat the command, or `gapsl resume` the folder, to go on where it stopped."
)


@with_run_options
def compare(
    out: Annotated[Path, typer.Option(help="Folder for all runs; each gets its own inside.")],
    methods: Annotated[
        str, typer.Option(help="Methods, or presets that name one (recommended), separated by commas.")
    ] = "psl,sfl,gapsl",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    workers: running.Workers = None,
    plots: running.Plots = False,
    plot_format: running.PlotFormat = "png",
    dashboard: running.LivePage = False,
    quiet: running.Quiet = False,
    **settings: Unpack[RunOptions],
) -> None:
    """Train methods side by side, the same data, order and start for all, and print one table."""
    chosen = chosen_settings(settings)
    if plots:
        figure(1, 1)  # says now, and not after all training, if there is nothing to draw with
    with live_page(out, dashboard, say), Interrupt(running.asked_to_stop) as interrupt:
        done = gapsl.compare(
            words(methods, "methods"),
            seeds=numbers(seeds),
            config=chosen,
            out=out,
            workers=workers or default_workers([chosen]),
            progress=Display(output, quiet=quiet),
            stop=lambda: interrupt.asked,
        )
        report(done, interrupt, plots=plots, plot_format=plot_format)


def report(done: Comparison, interrupt: Interrupt, *, plots: bool = False, plot_format: str = "png") -> None:
    """Print how a comparison ended, and leave with its exit code."""
    ended = {-signal.SIGINT, -signal.SIGTERM} if interrupt.asked else set()  # before they could say so
    failed = {name: failure for name, failure in done.failures.items() if failure.code not in ended}
    for name, failure in failed.items():
        complain(f"{name}: {failure.message}")
    if done.results:
        show(done.folder, plots=plots, plot_format=plot_format)
    if interrupt.asked:
        say(f"stopped; go on with: gapsl resume {done.folder}")
        raise typer.Exit(interrupt.exit_code)
    if failed:
        raise typer.Exit(max(one.code if one.code in (2, 3, 4) else 1 for one in failed.values()))


def words(text: str, option: str) -> list[str]:
    """Read a list separated by commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise InputError(f"--{option} is empty; give one or more, separated by commas")
    return found


def numbers(text: str) -> list[int]:
    """Read seeds separated by commas."""
    found = words(text, "seeds")
    try:
        return [int(word) for word in found]
    except ValueError:
        raise InputError(
            f"--seeds takes whole numbers separated by commas, like 0,1,2, not {text!r}"
        ) from None
