"""`gapsl train`: one run of one method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import gapsl
from gapsl.analysis.progress import Display, RunProgress
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.cli.settings import chosen_settings
from gapsl.cli.show import print_results
from gapsl.common.interrupt import Interrupt
from gapsl.dashboard.launch import live_page
from gapsl.methods.registry import METHODS
from gapsl.run.records import RunResult

EPILOG = (
    "Example: gapsl train --method gapsl --dataset cifar10 --model vgg16 --partition dirichlet:0.1 "
    "--rounds 500 --out runs/a. All settings: docs/configuration.md."
)


def train(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the run's files; default: runs/DATASET-METHOD-seedN."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="The method; `gapsl methods` lists them.")] = None,
    dataset: running.Dataset = None,
    data_dir: running.DataDir = None,
    model: running.Model = None,
    cut: running.Cut = None,
    devices: running.Devices = None,
    partition: running.PartitionSpec = None,
    participation: running.Participation = None,
    rounds: running.Rounds = None,
    epochs: running.Epochs = None,
    batch_size: running.BatchSize = None,
    lr: running.Rate = None,
    seed: Annotated[int | None, typer.Option(help="Every random choice follows from it.")] = None,
    validation: running.Validation = None,
    evaluate_every: running.EvaluateEvery = None,
    checkpoint_every: running.CheckpointEvery = None,
    device: running.Device = None,
    processes: running.Processes = None,
    fleet: running.FleetKind = None,
    ray_address: running.RayAddress = None,
    pretrained: running.Pretrained = None,
    tensorboard: running.TensorBoard = None,
    config: running.ConfigFile = None,
    preset: running.Preset = None,
    set_: running.Assignments = None,
    plugin: running.Plugins = None,
    dashboard: running.LivePage = False,
    quiet: running.Quiet = False,
) -> None:
    """Train one method; Ctrl-C stops after the round, and `gapsl resume` goes on."""
    chosen = chosen_settings(**locals())
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
