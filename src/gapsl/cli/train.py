"""`gapsl train`: one run of one method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Unpack

import typer

import gapsl
from gapsl.analysis.progress import Display, RunProgress
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.cli.settings import RunOptions, chosen_settings, with_run_options
from gapsl.cli.show import print_results
from gapsl.common.interrupt import Interrupt
from gapsl.dashboard.launch import live_page
from gapsl.methods.registry import METHODS
from gapsl.run.records import RunResult

EPILOG = (
    "Example: gapsl train --method gapsl --dataset cifar10 --model vgg16 --partition dirichlet:0.1 "
    "--rounds 500 --out runs/a. All settings: docs/configuration.md."
)


@with_run_options
def train(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the run's files; default: runs/DATASET-METHOD-seedN."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="The method; `gapsl methods` lists them.")] = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    dashboard: running.LivePage = False,
    quiet: running.Quiet = False,
    **settings: Unpack[RunOptions],
) -> None:
    """Train one method; Ctrl-C stops after the round, and `gapsl resume` goes on."""
    chosen = chosen_settings(settings, method=method, seed=seed)
    if out is None:
        method_name = METHODS.canonical(chosen.method).replace("/", "-")
        out = Path("runs") / f"{chosen.dataset.replace('/', '-')}-{method_name}-seed{chosen.seed}"
    with (
        live_page(out, dashboard, say),
        Interrupt(running.asked_to_stop) as interrupt,
        Display(output, quiet=quiet) as display,
    ):
        result = gapsl.train(
            chosen,
            out=out,
            observers=[RunProgress(display, chosen.method)],
            stop=lambda: interrupt.asked,
            progress=display.download,
        )
    report(result, out, interrupt)


def report(result: RunResult | None, out: Path, interrupt: Interrupt) -> None:
    """Print how a run ended, and leave with its exit code."""
    if result is None:
        say(f"stopped; go on with: gapsl resume {out}")
        raise typer.Exit(interrupt.exit_code)
    print_results([result])
    say(f"files: {out}/result.json, records.jsonl, checkpoints/")
