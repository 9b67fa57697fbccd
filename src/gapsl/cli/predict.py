"""`gapsl predict`: what a trained model makes of images."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gapsl.cli import networking, running
from gapsl.cli.export import Client
from gapsl.cli.running import output
from gapsl.common.errors import InputError
from gapsl.inference.places import parts_at
from gapsl.inference.predict import Prediction
from gapsl.inference.predict import predict as predictions
from gapsl.inference.remote import with_remote_server

EPILOG = (
    "Example: gapsl predict runs/a photos/ --client 3 --fit --format csv. With the server-side model "
    "elsewhere: gapsl predict gapsl-state photos/ --server HOST:7445 --name camera-1. See docs/export.md."
)


def predict(
    place: Annotated[
        Path, typer.Argument(help="A run's folder, an export, or with --server a device's state.")
    ],
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    client: Client = None,
    top: Annotated[int, typer.Option(help="Classes to show, the most probable first.")] = 3,
    fit: Annotated[bool, typer.Option("--fit", help="Bring images to the model's size and colours.")] = False,
    format: Annotated[str, typer.Option(help="table, csv or json.")] = "table",
    server: Annotated[
        str | None, typer.Option(help="HOST:PORT of a gapsl serve-model, which has the server-side model.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="This device's name, with --server; default: device-0.")
    ] = None,
    certs: networking.Certs = None,
    insecure: networking.Insecure = False,
    data_dir: running.DataDir = None,
    plugin: running.Plugins = None,
) -> None:
    """Predict the classes of images with a trained model, whole or in two places."""
    if format not in PRINTERS:
        raise InputError(f"unknown --format {format!r}; choose {', '.join(PRINTERS)}")
    if server is None and (name is not None or certs is not None or insecure):
        raise InputError("--name, --certs and --insecure are for a --server; give one, or leave them out")
    parts = parts_at(place, client, data_dir=data_dir)
    if server is not None:
        parts = with_remote_server(parts, server, name or "device-0", certs=certs, insecure=insecure)
    PRINTERS[format](list(predictions(parts.joined(), images, top=top, fit=fit)))


def print_table(found: Sequence[Prediction]) -> None:
    """Print a row per image."""
    table = Table("image", *(f"{rank + 1}." for rank in range(len(found[0].classes))), box=None)
    for one in found:
        pairs = zip(one.classes, one.probabilities, strict=True)
        table.add_row(str(one.image), *(f"{name} {100 * share:.1f} %" for name, share in pairs))
    output.print(table, highlight=False, markup=False)


def print_csv(found: Sequence[Prediction]) -> None:
    """Print a line per image: its name, then classes and probabilities."""
    writer = csv.writer(sys.stdout)
    ranks = range(1, len(found[0].classes) + 1)
    writer.writerow(["image", *(word for rank in ranks for word in (f"class_{rank}", f"probability_{rank}"))])
    for one in found:
        pairs = zip(one.classes, one.probabilities, strict=True)
        writer.writerow([one.image, *(word for name, share in pairs for word in (name, f"{share:.6f}"))])


def print_json(found: Sequence[Prediction]) -> None:
    """Print a list with an object per image."""
    rows = [
        {
            "image": str(one.image),
            "classes": [
                {"class": name, "probability": share}
                for name, share in zip(one.classes, one.probabilities, strict=True)
            ],
        }
        for one in found
    ]
    sys.stdout.write(json.dumps(rows, indent=1) + "\n")


PRINTERS = {"table": print_table, "csv": print_csv, "json": print_json}
