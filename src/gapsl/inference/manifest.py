"""What an export says of itself: `export.json`, with the SHA-256 of every file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from gapsl.common.errors import InputError
from gapsl.common.files import write_json
from gapsl.common.settings import Settings
from gapsl.common.tensors import read_tensors
from gapsl.device.model_info import ModelInfo, first_line, parse_model_info
from gapsl.inference.split_model import ClientPart, TrainedParts, blank_parts, filled
from gapsl.models import GivenModel
from gapsl.models.stored import AGAIN, EXPORT, KIND, SCHEMA, read_export

Format = Literal["safetensors", "torch", "onnx"]
SUFFIXES: dict[Format, str] = {"safetensors": ".safetensors", "torch": ".pt2", "onnx": ".onnx"}


class Manifest(Settings):
    """Where an exported model is from, and its files."""

    format: Format
    method: str
    run: str
    round: int
    client: str
    accuracy: float | None = None
    clients: tuple[int, ...] = ()  # whose client-side models are here, by device; -1: of no one device
    server: bool = True  # whether the server-side model is here
    raw_inputs: bool = False  # the joined model scales and normalises itself
    opset: int | None = None
    gapsl: str
    torch: str
    files: dict[str, str]

    def name_of(self, what: str, number: int = -1) -> str:
        """Return the file of a part: `client`, `head`, `server` or `model`."""
        several = f"-{number:04d}" if len(self.clients) > 1 and number >= 0 else ""
        return f"{what}{several}{SUFFIXES[self.format]}"


def write_manifest(folder: Path, manifest: Manifest, info: ModelInfo) -> None:
    """Write what an export says of itself."""
    content = {"kind": KIND, "schema": SCHEMA, **manifest.model_dump(mode="json"), "model": info.to_dict()}
    write_json(folder / EXPORT, content)


def read_manifest(folder: Path) -> tuple[Manifest, ModelInfo]:
    """Read what an export says of itself, and check that its files are what was written."""
    said = read_export(folder)
    try:
        own = {name: value for name, value in said.items() if name not in ("kind", "schema", "model")}
        return Manifest.model_validate(own), parse_model_info(said.get("model"))
    except ValueError as error:
        raise InputError(f"{folder / EXPORT} cannot be read: {first_line(error)}; {AGAIN}") from None


def export_parts(
    folder: Path, client: int | str | None = None, model: GivenModel | None = None
) -> TrainedParts:
    """Return the parts of a model that was exported as safetensors."""
    manifest, info = read_manifest(folder)
    if client is not None and str(client) != manifest.client:
        raise InputError(
            f"{folder} is the model of client {manifest.client}, not {client}; leave out the client"
        )
    if manifest.format != "safetensors":
        how = "torch.export.load" if manifest.format == "torch" else "onnxruntime"
        raise InputError(
            f"{folder} has format {manifest.format}, which {how} runs; gapsl reads --format safetensors"
        )
    blank_client, blank_server, blank_head = blank_parts(info, model)

    def read(what: str, number: int = -1) -> dict[str, Any]:
        return read_tensors(folder / manifest.name_of(what, number), way_out=AGAIN)

    clients = tuple(
        ClientPart(
            filled(blank_client, read("client", number), f"the client-side model in {folder}"),
            None if blank_head is None else filled(blank_head, read("head", number), f"the head in {folder}"),
            number,
        )
        for number in manifest.clients
    )
    server = (
        filled(blank_server, read("server"), f"the server-side model in {folder}")
        if manifest.server
        else None
    )
    return TrainedParts(
        info,
        clients,
        server,
        manifest.method,
        manifest.run,
        manifest.round,
        manifest.client,
        manifest.accuracy,
    )
