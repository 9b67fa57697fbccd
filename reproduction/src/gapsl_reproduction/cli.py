"""`gapsl reproduce`: the paper's tables and figures, and ours, as runs that are done once and kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gapsl.analysis.progress import Display, clock
from gapsl.analysis.workers import run_supply
from gapsl.cli import running
from gapsl.cli.running import errors, output
from gapsl.common.errors import InputError
from gapsl.common.interrupt import Interrupt
from gapsl.device.build import compute_device
from gapsl.run.parts import take_source
from gapsl_reproduction.catalogue import EXPERIMENTS, GROUPS, Experiment, find
from gapsl_reproduction.plan import wanted
from gapsl_reproduction.progress import Pace, QueueProgress, time_left
from gapsl_reproduction.queue import Queue, Standing
from gapsl_reproduction.runs import RunSpec
from gapsl_reproduction.scales import SCALES, Scale, find_scale
from gapsl_reproduction.store import Store

RESULTS = Path("results")
DOCS = Path("docs")
PAGE = "results.md"
COMMITTED = "standard"  # the scale whose results are part of the repository, and whose page is in docs/
WORK = Path("runs") / "reproduce"

EPILOG = (
    "Example: gapsl reproduce table1 ablations --scale standard. Each result is kept when its run ends, and "
    "what is there is not done again: stop with Ctrl-C, or lose the power, and repeat the command to go on. "
    "At the end it draws the figures and writes a page of all results. "
    "Names: gapsl reproduce --list. Check --plan first: this can take a day."
)


def reproduce(
    what: Annotated[
        list[str] | None, typer.Argument(help="Tables, figures and studies by name; --list shows them.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="; ".join(f"{scale.name}: {scale.summary}" for scale in SCALES.values()) + ".")
    ] = "standard",
    list_: Annotated[bool, typer.Option("--list", help="List the experiments with their runs.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would run and how long it would take; run nothing.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time, one thread each; default: one a core.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds for everything, instead of the scale's own numbers.")
    ] = None,
    device: running.Device = None,
    data_dir: running.DataDir = None,
    results: Annotated[
        Path, typer.Option(help="Folder for the results; each scale has its own in it.")
    ] = RESULTS,
    work: Annotated[
        Path | None, typer.Option(help="Folder for runs that go on; default: runs/reproduce/SCALE.")
    ] = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the whole folder of a run that is done.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try runs again that failed, for example by divergence.")
    ] = False,
    report_only: Annotated[
        bool,
        typer.Option("--report-only", help="Draw figures and write the page of what is there; run nothing."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            help=f"Page to write; default: {PAGE} beside the results, {DOCS / PAGE} for {COMMITTED} in a "
            "checkout."
        ),
    ] = None,
    quiet: running.Quiet = False,
) -> None:
    """Run the experiments of the paper, and ours; every run once, whatever it is needed for."""
    chosen = find_scale(scale)
    if seeds is not None:
        chosen = chosen.with_seeds(seeds)
    if device is not None:
        compute_device(device)  # says now, and not of every run, that there is none
        chosen = chosen.with_settings({"device": device})
    if list_:
        list_experiments(find(what) if what else list(EXPERIMENTS.values()), chosen)
        return
    if page is None:
        page = page_of(chosen, results, usual=seeds is None)
    if report_only:
        report(chosen, Store(results / chosen.name, warn=warn), page, quiet=quiet)
        return
    if not what:
        raise InputError("say what to reproduce, for example: gapsl reproduce table1; names: --list")
    experiments = find(what)
    count = workers or os.cpu_count() or 1
    if data_dir is not None:
        os.environ["GAPSL_DATA"] = data_dir  # the workers look there too
    store = Store(results / chosen.name, mend=not plan, warn=warn)
    if plan:
        show_plan(experiments, chosen, store, workers=count, retry_failed=retry_failed)
        return
    work = work if work is not None else WORK / chosen.name
    if work.exists() and not work.is_dir():
        raise InputError(f"--work {work} is a file; name a folder")
    with store.locked():
        follow = partial(wanted, experiments, chosen, store.get)
        pace = Pace(result for run in follow().runs if (result := store.get(run.key)) is not None)
        progress = QueueProgress(output, pace, workers=count, quiet=quiet)
        queue = Queue(follow, store, work, progress, keep=keep_runs, retry_failed=retry_failed)
        run(queue, progress, store, count, quiet=quiet)
        report(chosen, store, page, quiet=quiet)
        if queue.errors:
            raise typer.Exit(max(code if code in (2, 3, 4) else 1 for _, code, _ in queue.errors.values()))


def run(queue: Queue, progress: QueueProgress, store: Store, workers: int, *, quiet: bool) -> None:
    """Do what is wanted and not there, and say how it went."""
    check_data(queue.standing().waiting, quiet=quiet)
    with Interrupt(running.asked_to_stop) as interrupt:
        with progress:
            progress.begin(queue.standing())
            run_supply(queue, workers=workers, display=progress, stop=lambda: interrupt.asked)
        tell_end(queue.standing(), store)
        if interrupt.asked:
            output.print("stopped; repeat the command to go on", highlight=False)
            raise typer.Exit(interrupt.exit_code)


def page_of(scale: Scale, results: Path, *, usual: bool) -> Path:
    """Return where the page belongs: the committed results' own is in docs/, if all of it is as usual."""
    checkout = Path("pyproject.toml").is_file() and DOCS.is_dir() and results.resolve() == RESULTS.resolve()
    return DOCS / PAGE if checkout and usual and scale.name == COMMITTED else results / scale.name / PAGE


def report(scale: Scale, store: Store, page: Path, *, quiet: bool) -> None:
    """Write the page and its appendix, with figures, from everything that is stored at a scale."""
    from gapsl_reproduction.report.frame import Evidence
    from gapsl_reproduction.report.page import write_report

    others = store.others({run.key for run in every_run(scale, store)})
    if others:
        warn(
            f"{len(others)} results in {store.runs} are of no run that {scale.name} plans (another version, "
            f"scale or number of seeds); they are not shown: {', '.join(others[:3])}"
            + (", ..." if len(others) > 3 else "")
        )
    evidence = Evidence(scale, store.get)
    if not evidence.count:
        trials = f" but {len(evidence.trials)} trials" if evidence.trials else ""
        tell(f"{store.runs} has no finished run{trials}; gapsl reproduce core --scale {scale.name} does them")
        if not page.parent.is_dir():
            return
    drawn = write_report(evidence, store.folder / "figures", page, warn)
    if not quiet:
        tell(f"wrote {page} and {len(drawn)} figures from {evidence.count} runs in {store.runs}")


def every_run(scale: Scale, store: Store) -> list[RunSpec]:
    """Return all runs that any experiment wants, trials included."""
    found = wanted(EXPERIMENTS.values(), scale, store.get)
    return [*found.runs, *found.open]


def check_data(runs: Sequence[RunSpec], *, quiet: bool) -> None:
    """Find or download all data before anything starts."""
    with Display(output, quiet=quiet) as display:
        for config in {run.config.dataset: run.config for run in runs}.values():
            take_source(config, None, progress=display.download)


def tell_end(standing: Standing, store: Store) -> None:
    """Say what is there now, and what failed."""
    tell(f"{len(standing.done)} of {standing.total} runs are in {store.runs}")
    failed = failed_of(standing.done, store)
    for run, reason in failed:
        tell(f"failed: {run.name}: {reason}")
    if failed:
        tell("failed runs are kept as such; --retry-failed tries them again")


def failed_of(runs: Sequence[RunSpec], store: Store) -> list[tuple[RunSpec, str]]:
    """Return the stored runs that failed, with the reasons."""
    found = [(run, store.get(run.key)) for run in runs]
    return [(run, result["failed"]) for run, result in found if result is not None and "failed" in result]


def tell(line: str) -> None:
    """Print a line as it is."""
    output.print(line, highlight=False, markup=False, soft_wrap=True)


def list_experiments(experiments: Sequence[Experiment], scale: Scale) -> None:
    """Print every experiment with a line, and its runs at a scale."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "shows", "what"):
        table.add_column(heading, no_wrap=heading != "what")
    table.add_column("runs", justify="right")
    for experiment in experiments:
        found = wanted([experiment], scale, lambda key: None)
        count = len(found.runs) + len(found.open)
        table.add_row(experiment.name, experiment.shows, experiment.title, str(count))
    output.print(table)
    found = wanted(experiments, scale, lambda key: None)
    tell(
        f"\n{len(found.runs) + len(found.open)} different runs at scale {scale.name}, searches of learning "
        "rates included; experiments share them"
    )
    for name, members in GROUPS.items():
        told = "every experiment" if len(members) == len(EXPERIMENTS) else ", ".join(members)
        tell(f"{name}: {told}")


def show_plan(
    experiments: Sequence[Experiment], scale: Scale, store: Store, *, workers: int, retry_failed: bool
) -> None:
    """Print what would run, in order, with what is done and how long the rest would take."""
    found = wanted(experiments, scale, store.get)
    every = [*found.runs, *found.open]
    stored = {run.key: result for run in every if (result := store.get(run.key)) is not None}
    failed = {run.key for run, _ in failed_of(every, store)}
    done = set(stored) - (failed if retry_failed else set())
    pace = Pace(stored.values())
    for run in found.runs:
        if run.key not in done:
            tell(run.name)
    if found.open:
        tell(f"{len(found.open)} more, with the learning rates that these will choose")
    seconds = [pace.of_run(run.config) for run in every if run.key not in done]
    left = time_left(seconds, (), workers)
    about = "no run was measured yet" if left is None else f"about {clock(left)} with {workers} at a time"
    tell(
        f"{scale.name}: {len(done)} of {len(every)} runs are done"
        + (f" ({len(failed)} failed)" if failed else "")
        + (f"; {about}" if seconds else "")
    )


def warn(message: str) -> None:
    """Print a warning."""
    errors.print(f"warning: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)
