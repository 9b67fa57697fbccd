"""`gapsl model`: where a model can be cut, and what each side costs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from gapsl.cli.running import output
from gapsl.common.errors import InputError
from gapsl.data import load_source
from gapsl.models import MODELS, build_model, check_cut

EPILOG = "Example: gapsl model vgg16 --cut 4"


def model(
    name: Annotated[str | None, typer.Argument(help="The model; leave out to list them.")] = None,
    cut: Annotated[str | None, typer.Option(help="Where to cut it; default: the model's own.")] = None,
    input: Annotated[
        str, typer.Option("--input", help="Shape of one sample: CHANNELSxHEIGHTxWIDTH.")
    ] = "3x32x32",
    classes: Annotated[int, typer.Option(min=2, help="Number of classes.")] = 10,
    dataset: Annotated[str | None, typer.Option(help="Take shape and classes from a dataset.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 128,
    width: Annotated[float, typer.Option(help="Multiplier of the widths.")] = 1.0,
    norm: Annotated[str, typer.Option(help="Normalisation: none, batch or group.")] = "none",
    patch: Annotated[int, typer.Option(min=1, help="Patch size (ViT).")] = 4,
    pretrained: Annotated[str | None, typer.Option(help="Weights to load: .safetensors or .pt.")] = None,
) -> None:
    """Print both sides of a cut model: layers, parameters, FLOPs, and what crosses the cut."""
    if name is None:
        for known, entry in MODELS.items():
            output.print(f"[bold]{known}[/bold]  {entry.summary}", highlight=False, soft_wrap=True)
            output.print(f"    cuts: {entry.cuts} [{entry.default_cut}]", highlight=False, markup=False)
        return
    shape: tuple[int, ...] = parse_shape(input)
    if dataset is not None:
        source = load_source(dataset)
        shape, classes = source.input_shape, len(source.classes)
    parts = build_model(
        name,
        classes=classes,
        input_shape=shape,
        cut=cut,
        width=width,
        norm=norm,
        patch=patch,
        pretrained=pretrained,
    )
    found = check_cut(parts, input_shape=shape, classes=classes, batch_size=batch_size)
    sides = {"device": found.device, "server": found.server}
    names = [layer.name for side in sides.values() for layer in side.layers]
    layers = Table(box=None, pad_edge=False)
    layers.add_column("layer", no_wrap=True, min_width=max(map(len, names)))
    layers.add_column("parameters", no_wrap=True, min_width=len("parameters"), justify="right")
    layers.add_column("kind")
    for part, side in sides.items():
        layers.add_row(f"[bold]{part}[/bold]")
        for layer in side.layers:
            layers.add_row(layer.name, f"{layer.parameters:,}" if layer.parameters else "", layer.kind)
    output.print(layers)
    parts_table = Table(box=None, pad_edge=False)
    for heading in ("", "device", "server"):
        parts_table.add_column(heading, justify="left" if not heading else "right")
    for title, name in (("parameters",) * 2, ("buffers",) * 2, ("FLOPs per batch, forward", "flops")):
        parts_table.add_row(title, *(f"{getattr(side, name):,}" for side in sides.values()))
    output.print()
    output.print(parts_table)
    output.print()
    activations = "×".join(map(str, found.activation_shape))
    dtype = str(found.activation_dtype).removeprefix("torch.")
    output.print(f"activations per batch of {batch_size}: {activations} {dtype}", highlight=False)
    output.print(f"bytes per batch, each way: {found.activation_bytes:,}", highlight=False)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Read a shape like 3x32x32."""
    try:
        channels, height, width = (int(part) for part in text.lower().replace("×", "x").split("x"))
    except ValueError:
        raise InputError(f"--input takes CHANNELSxHEIGHTxWIDTH, like 3x32x32, not {text!r}") from None
    return channels, height, width
