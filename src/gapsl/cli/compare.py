"""`gapsl compare`: several methods and seeds side by side."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gapsl.analysis.comparison import Job, lay_out, run_jobs, runs_in
from gapsl.analysis.plots import figure
from gapsl.analysis.progress import Board
from gapsl.cli import running
from gapsl.cli.running import errors, output
from gapsl.cli.settings import chosen_settings
from gapsl.cli.show import finished_runs, show_runs
from gapsl.common.errors import GapslError, InputError
from gapsl.common.interrupt import Interrupt
from gapsl.common.registry import nearest
from gapsl.methods.registry import METHODS
from gapsl.run.build import prepare
from gapsl.run.config import Config, make_config, merge, preset, presets
from gapsl.run.folder import RunFolder

EPILOG = (
    "Example: gapsl compare --methods psl,sfl,gapsl --seeds 0,1,2 --rounds 200 --out runs/b. "
    "Repeat the command, or `gapsl resume` the folder, to go on where it stopped."
)


def compare(
    out: Annotated[Path, typer.Option(help="Folder for all runs; each gets its own inside.")],
    methods: Annotated[
        str, typer.Option(help="Methods, or presets that name one (recommended), separated by commas.")
    ] = "psl,sfl,gapsl",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time, one thread each; default: one a core.")
    ] = None,
    plots: Annotated[
        bool, typer.Option("--plots", help="Draw curves, label split and angles as PNG.")
    ] = False,
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
    validation: running.Validation = None,
    evaluate_every: running.EvaluateEvery = None,
    checkpoint_every: running.CheckpointEvery = None,
    device: running.Device = None,
    pretrained: running.Pretrained = None,
    tensorboard: running.TensorBoard = None,
    config: running.ConfigFile = None,
    preset: running.Preset = None,
    set_: running.Assignments = None,
    quiet: running.Quiet = False,
) -> None:
    """Train methods side by side, the same data, order and start for all, and print one table."""
    base = chosen_settings(
        config,
        preset,
        set_,
        dataset=dataset,
        data_dir=data_dir,
        model=model,
        cut=cut,
        devices=devices,
        partition=partition,
        participation=participation,
        rounds=rounds,
        epochs=epochs,
        batch_size=batch_size,
        validation=validation,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        device=device,
        pretrained=pretrained,
        tensorboard=tensorboard,
    )
    for name, option in (("method", "--methods"), ("seed", "--seeds")):
        if getattr(base, name) != Config.model_fields[name].default:
            raise InputError(f"a comparison takes {option}, not the setting {name}; leave it out")
    jobs = []
    for seed in numbers(seeds):
        for entry, own in entries(words(methods, "methods")).items():
            values = merge(base.model_dump(mode="json"), base.sections, own, {"seed": seed})
            name = f"{entry.replace('/', '-')}-seed{seed}"
            jobs.append(Job(name, out / name, make_config(values)))
    if plots:
        figure(1, 1)  # says now, and not after all training, if there is nothing to draw with
    with Board(output, quiet=quiet) as board:
        prepare(jobs[0].config, progress=board.download)  # bad input shows here, before any run starts
    finish(out, lay_out(out, jobs), workers=workers, quiet=quiet, plots=plots)


def entries(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each method, or of each preset that names one, by what it is called."""
    found: dict[str, dict[str, Any]] = {}
    named = {name: values for name in presets() if "method" in (values := preset(name))}
    for name in names:
        if name in named:
            found[name] = {**named[name], "label": name}
        elif name in METHODS:
            method = METHODS.canonical(name)
            found[method] = {"method": method}
        else:
            raise InputError(f"unknown method {name!r}; {nearest(name, [*METHODS, *named])}")
    return found


def finish(
    out: Path,
    jobs: Sequence[Job],
    *,
    workers: int | None,
    quiet: bool = False,
    plots: bool = False,
    data_dir: str | None = None,
) -> None:
    """Run what is left of a comparison, then show the whole of it."""
    if data_dir is not None:
        os.environ["GAPSL_DATA"] = data_dir  # the workers look there too
    with Interrupt(running.asked_to_stop) as interrupt:
        with Board(output, quiet=quiet) as board:
            report = run_jobs(
                jobs,
                workers=workers or os.cpu_count() or 1,
                display=Events(board),
                stop=lambda: interrupt.asked,
            )
        ended = {0, 130, -signal.SIGINT, -signal.SIGTERM} if interrupt.asked else {0}
        failed = {name: code for name, code in report.codes.items() if code not in ended}
        for name, code in failed.items():
            message = report.messages.get(name) or f"ended with code {code}; see {out / name / 'log.txt'}"
            errors.print(f"{name}: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
        if finished_runs(out):
            show_runs(out, plots=plots)
        if interrupt.asked:
            output.print(
                f"stopped; go on with: gapsl resume {out}", highlight=False, markup=False, soft_wrap=True
            )
            raise typer.Exit(interrupt.exit_code)
        if failed:
            raise typer.Exit(max(code if code in (2, 3) else 1 for code in failed.values()))


def unfinished(out: Path) -> list[Job]:
    """Return the runs of a comparison that have not finished."""
    if RunFolder(out).config_file.exists():
        return []
    runs = [run for run in runs_in(out) if not run.result_file.exists()]
    return [Job(run.path.name, run.path, run.config()[0]) for run in runs]


class Events:
    """Shows what the jobs say on a board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def event(self, job: Job, event: Mapping[str, Any]) -> None:
        """Show one event."""
        if event["event"] == "started":
            self._board.start(job.name, event["first"], event["total"])
        elif event["event"] == "round":
            self._board.advance(job.name, event)
        elif event["event"] == "warning":
            self._board.warn(f"{job.name}: {event['message']}")


def words(text: str, option: str) -> list[str]:
    """Read a list separated by commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise InputError(f"--{option} is empty; give one or more, separated by commas")
    return found


def numbers(text: str) -> list[int]:
    """Read seeds separated by commas."""
    try:
        return list(dict.fromkeys(int(word) for word in words(text, "seeds")))
    except ValueError as error:
        if isinstance(error, GapslError):
            raise
        raise InputError(
            f"--seeds takes whole numbers separated by commas, like 0,1,2, not {text!r}"
        ) from None
