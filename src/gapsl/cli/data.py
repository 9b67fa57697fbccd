"""`gapsl data`: the datasets, and who has what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapsl.analysis.formats import counted
from gapsl.analysis.progress import Display
from gapsl.cli import running
from gapsl.cli.running import guarded, output, say
from gapsl.data import SOURCES, load_source, make_partition, render_counts

app = typer.Typer(help="Show datasets and how they are divided among devices.", no_args_is_help=True)


@app.command("list")
@guarded
def list_sources() -> None:
    """List the datasets."""
    for name, loader in SOURCES.items():
        first_line = (loader.__doc__ or "").strip().splitlines()[0]
        shown = f"{name}PATH" if name.endswith(":") else name
        say(f"{shown:<16}{first_line}")


@app.command("get")
@guarded
def get(
    dataset: Annotated[str, typer.Argument(help="The dataset to find or download.")],
    data_dir: running.DataDir = None,
) -> None:
    """Find a dataset's files on this machine, or download them with progress, resume and md5."""
    with Display(output) as display:
        source = load_source(dataset, data_dir=data_dir, progress=display.download)
    shape = "×".join(map(str, source.input_shape))
    say(
        f"{source.name}: {len(source.train)} training and {len(source.test)} test samples of {shape}, "
        f"{len(source.classes)} classes"
    )


@app.command("show")
@guarded
def show(
    dataset: Annotated[str, typer.Option(help="The dataset.")] = "digits",
    partition: Annotated[str, typer.Option(help="Who has what, e.g. dirichlet:0.1.")] = "dirichlet:0.1",
    devices: Annotated[int, typer.Option(help="Number of devices.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The run's seed.")] = 0,
    validation: Annotated[float, typer.Option(help="Share of the training data held out.")] = 0.0,
    data_dir: running.DataDir = None,
    png: Annotated[Path | None, typer.Option(help="Also draw it into this file.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Save the partition here, for --partition file:PATH.")
    ] = None,
) -> None:
    """Draw who has how many samples of which class."""
    with Display(output) as display:
        source = load_source(dataset, data_dir=data_dir, progress=display.download)
    made = make_partition(
        partition,
        source.train.labels,
        classes=len(source.classes),
        devices=devices,
        seed=seed,
        validation=validation,
        fingerprint=source.train_fingerprint,
    )
    counts = made.label_counts(source.train.labels, len(source.classes))
    say(f"{source.name}, {made.spec}, {counted(len(made.devices), 'device')}, seed {made.seed}")
    output.print(render_counts(counts, source.classes, width=output.width), highlight=False, markup=False)
    if png is not None:
        from gapsl.analysis.plots import plot_labels  # an extra: imported only where it is asked for

        plot_labels(counts, source.classes, png, title=f"{source.name}, {made.spec}, seed {made.seed}")
        say(f"drawn: {png}")
    if save is not None:
        made.save(save)
        say(f"saved: {save}")
