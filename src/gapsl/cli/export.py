"""`gapsl export`: a trained model as files for others to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from gapsl.cli import running
from gapsl.cli.running import complain, say
from gapsl.common.errors import InputError
from gapsl.inference import export as exporting
from gapsl.inference.manifest import Format

EPILOG = (
    "Example: gapsl export runs/a --client merged --format onnx --raw-inputs --out model. Of a run over the "
    "network: gapsl export runs/fleet --out server on the server, gapsl export gapsl-state --out device on "
    "the device, and gapsl export --join server device --out model. See docs/export.md."
)

Client = Annotated[
    str | None,
    typer.Option(
        help="Whose client-side model: a device's number, merged (their mean, the default) or ensemble "
        "(the mean of all predictions)."
    ),
]


def export(
    out: Annotated[Path, typer.Option(help="A new folder for the model's files.")],
    run: Annotated[
        Path | None,
        typer.Argument(help="A run's folder, a device's state, or an export.", show_default=False),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(help="A device's number, merged (the default), ensemble, or all: a folder for each."),
    ] = None,
    format: Annotated[str, typer.Option(help="safetensors, torch (torch.export) or onnx.")] = "safetensors",
    raw_inputs: Annotated[
        bool,
        typer.Option("--raw-inputs", help="The joined model scales and normalises its inputs (torch, onnx)."),
    ] = False,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set; default: the exporter's own.")] = None,
    join: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SERVER DEVICE", help="Put a server's part and a device's together."),
    ] = None,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate/--no-evaluate", help="Measure the accuracy again, where the run's data are here."
        ),
    ] = True,
    data_dir: running.DataDir = None,
    plugin: running.Plugins = None,
) -> None:
    """Export a trained model: both parts and the joined one, each run before it is called done."""
    if (run is None) == (join is None):
        raise InputError("give a run's folder, or two parts with --join SERVER DEVICE")
    server, device = join or (run, None)
    assert server is not None
    done = exporting.export(
        server,
        out,
        client=client,
        format=cast(Format, format),
        raw_inputs=raw_inputs,
        opset=opset,
        join=device,
        evaluate=evaluate,
        data_dir=data_dir,
    )
    for one in done:
        whose = f"client {one.client}" if one.client else "the server's part"
        measured = ""
        if one.accuracy is not None:
            again = "measured again" if one.evaluated else "as the run measured it"
            measured = f", accuracy {100 * one.accuracy:.1f} % ({again})"
        say(f"{one.folder}: {whose}, {', '.join(one.files)}{measured}; outputs differ by {one.apart:.1g}")
        if one.note:
            complain(f"note: {one.note}")
