"""Exporting trained models: both parts and the joined model as files, each run and compared first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import gapsl
from gapsl.common.errors import GapslError, InputError
from gapsl.common.files import file_lock, fsync_folder, unwritable
from gapsl.common.tensors import DRAFT, remove, write_tensors
from gapsl.data import Source, load_source
from gapsl.data.from_python import GivenData
from gapsl.data.transform import normalise, to_float
from gapsl.device.build import EVALUATION_BATCH, limited_to
from gapsl.inference.formats import check_file, check_opset, write_model
from gapsl.inference.manifest import SUFFIXES, Format, Manifest, write_manifest
from gapsl.inference.places import is_run, parts_at
from gapsl.inference.run_parts import ALL, TrainedRun
from gapsl.inference.split_model import SplitModel, TrainedParts
from gapsl.models import GivenModel
from gapsl.models.stored import sha256_of
from gapsl.run.parts import take_source

ROWS = 3  # of the batch that files are tried with
SLACK = 0.005  # what an accuracy may be off by where another machine rounds otherwise


@dataclass(frozen=True)
class Exported:
    """An exported model: where it is, whose, and what it was held to."""

    folder: Path
    client: str
    files: tuple[str, ...]
    apart: float  # the largest relative difference between a file's output and the trained model's
    accuracy: float | None  # on the test set, as the run measured it
    evaluated: bool  # whether it was measured again, and is the same
    note: str = ""  # what a person should know of it


def export(
    place: str | Path,
    out: str | Path,
    *,
    client: int | str | None = None,
    format: Format = "safetensors",
    raw_inputs: bool = False,
    opset: int | None = None,
    join: str | Path | None = None,
    evaluate: bool = True,
    model: GivenModel | None = None,
    dataset: GivenData | None = None,
    data_dir: str | None = None,
) -> list[Exported]:
    """Export trained models of a run into a new folder; `client` as in `gapsl.load`, or "all".

    `place` may also be an export, or a device's state; `join` is a device's part that goes with a server's.
    With `raw_inputs` the joined model scales and normalises by itself. Every file is run before it is called
    done; of a finished run whose data are here the accuracy is measured again, unless `evaluate` is False.
    """
    check_choices(format, raw_inputs, opset)
    final = check_free(Path(out).expanduser())
    run: TrainedRun | None = None
    if is_run(Path(place).expanduser()):
        run = TrainedRun(place, model=model, dataset=dataset, data_dir=data_dir)
    if client == ALL:
        if run is None or join is not None:
            raise InputError("--client all is for a run with its devices' models in it; leave it out")
        chosen = [run.parts(number) for number in run.each]
    else:
        chosen = [run.parts(client) if run is not None else parts_at(place, client, model=model)]
    note = ""
    if join is not None:
        device = parts_at(join, model=model, round=chosen[0].round)
        if device.round != chosen[0].round:
            note = f"the server's part is of round {chosen[0].round}, the device's of round {device.round}"
        chosen = [chosen[0].joined_to(device)]
    if raw_inputs and any(parts.server is None or not parts.clients for parts in chosen):
        raise InputError("--raw-inputs is for a joined model, and this is a part of one; leave it out")
    test = None if run is None or not evaluate else evaluation_data(run, dataset)
    with drafted_folder(final) as draft:
        done = []
        for parts in chosen:
            inside = draft / f"client-{int(parts.client):04d}" if client == ALL else draft
            inside.mkdir(exist_ok=True)
            evaluated = test is not None and same_accuracy(parts, test)
            files, apart = write_parts(inside, parts, format, raw_inputs, opset)
            place_now = final / inside.relative_to(draft)
            done.append(Exported(place_now, parts.client, files, apart, parts.accuracy, evaluated, note))
    return done


def check_choices(format: Format, raw_inputs: bool, opset: int | None) -> None:
    """Refuse what does not go together, before anything is read."""
    if format not in SUFFIXES:
        raise InputError(f"unknown format {format!r}; choose {', '.join(SUFFIXES)}")
    if raw_inputs and format == "safetensors":
        raise InputError(
            "safetensors holds weights and no computation, so --raw-inputs has no place in it; "
            "gapsl.load(...) has .preprocess, or choose --format onnx or torch"
        )
    check_opset(opset, format)


def check_free(out: Path) -> Path:
    """Refuse a folder that has anything in it."""
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(f"{out} is there already; choose another folder with --out")
    return out


@contextmanager
def drafted_folder(final: Path) -> Iterator[Path]:
    """Let a folder be written beside its place, which it takes as a whole or not at all.

    What a process that was killed has left beside it is removed.
    """
    draft = final.with_name(f".{final.name}{DRAFT}{os.getpid()}")
    try:
        tidy(final.parent)
        draft.mkdir(parents=True)
        with file_lock(draft):  # which says that somebody is writing
            yield draft
            for path in sorted(draft.rglob("*")):
                if path.is_file():
                    with path.open("rb+") as file:
                        os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                final.rmdir()  # it is empty
            draft.rename(final)
            fsync_folder(final.parent)
    except OSError as error:
        raise unwritable(final, error, "--out") from None
    finally:
        remove(draft)


def tidy(folder: Path) -> None:
    """Remove the drafts in a folder that nobody writes any more."""
    for left in folder.glob(f".*{DRAFT}*"):
        if left.is_dir() and left.name.rpartition(DRAFT)[2].isdecimal():
            with suppress(OSError), file_lock(left, wait=False):
                remove(left)


def write_parts(
    folder: Path, parts: TrainedParts, format: Format, raw_inputs: bool, opset: int | None
) -> tuple[tuple[str, ...], float]:
    """Write the files of a model, run each, and write what the export says of itself."""
    manifest = Manifest(
        format=format,
        method=parts.method,
        run=parts.run,
        round=parts.round,
        client=parts.client,
        accuracy=parts.accuracy,
        clients=tuple(one.number for one in parts.clients),
        server=parts.server is not None,
        raw_inputs=raw_inputs,
        opset=opset,
        gapsl=gapsl.__version__,
        torch=torch.__version__,
        files={},
    )
    apart, files = 0.0, {}
    for what, number, module, example in modules_of(parts, format, raw_inputs):
        path = folder / manifest.name_of(what, number)
        write_model(path, module, example, format, opset)
        apart = max(apart, check_file(path, module, example, format))
        files[path.name] = sha256_of(path)
    whole = uncut_weights(parts) if format == "safetensors" else None
    if whole is not None:
        path = folder / manifest.name_of("model")
        write_tensors(path, whole)
        files[path.name] = sha256_of(path)
    write_manifest(folder, manifest.model_copy(update={"files": files}), parts.info)
    return tuple(files), apart


def modules_of(
    parts: TrainedParts, format: Format, raw_inputs: bool
) -> Iterator[tuple[str, int, nn.Module, Tensor]]:
    """Yield what is exported: a name, a device's number, a module and a batch of its inputs."""
    info, generator = parts.info, torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, *info.input_shape, generator=generator).to(info.dtype)
    with torch.no_grad():
        at_cut = parts.clients[0].model(inputs) if parts.clients else cut_batch(parts)
        features = parts.server(at_cut) if parts.server is not None else None
    for model, _, number in parts.clients:
        yield "client", number, model, inputs
    if parts.server is not None:
        yield "server", -1, parts.server, at_cut
    if parts.server is None or not parts.clients:
        return
    for _, head, number in parts.clients:
        if head is not None and features is not None:
            yield "head", number, head, features
    joined = parts.joined()
    if format == "safetensors":  # its parts are all of it
        return
    if raw_inputs:
        raw = torch.randint(0, 256, (ROWS, *info.input_shape), generator=generator, dtype=torch.uint8)
        yield "model", -1, RawInputs(joined), raw if info.inputs == "bytes" else to_float(raw)
    else:
        yield "model", -1, joined, inputs


def cut_batch(parts: TrainedParts) -> Tensor:
    """Return a batch of the shape that a server-side model takes, where no client-side model is here."""
    client = parts.info.build().device.eval()
    found: Tensor = client(torch.zeros(ROWS, *parts.info.input_shape, dtype=parts.info.dtype))
    return found


def uncut_weights(parts: TrainedParts) -> dict[str, Tensor] | None:
    """Return the weights by the uncut model's names; None of an ensemble, or where parts share a name."""
    if parts.server is None or len(parts.clients) != 1:
        return None
    modules = [parts.clients[0].model, parts.server, parts.clients[0].head]
    found = [module.state_dict() for module in modules if module is not None]
    whole = {name: value for weights in found for name, value in weights.items()}
    return whole if len(whole) == sum(map(len, found)) else None


class RawInputs(nn.Module):
    """A model that scales and normalises by itself."""

    def __init__(self, model: SplitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of raw inputs."""
        info = self.model.info
        logits: Tensor = self.model(normalise(to_float(inputs), info.mean, info.std).to(info.dtype))
        return logits


def evaluation_data(run: TrainedRun, dataset: GivenData | None) -> Source | None:
    """Return the data that a run was tested on, if they are here."""
    if run.served or ("dataset" in run.custom and dataset is None):
        return None
    try:
        if dataset is not None:
            return take_source(run.config, dataset)
        found = load_source(run.config.dataset, data_dir=run.config.data_dir, download=False)
        return None if found.described else limited_to(run.config, found)
    except GapslError:
        return None


@torch.no_grad()
def same_accuracy(parts: TrainedParts, test: Source) -> bool:
    """Measure a model's accuracy as evaluations do; refuse one that is not what the run measured."""
    if parts.accuracy is None:
        return False
    model, right = parts.joined(), 0
    for start in range(0, len(test.test), EVALUATION_BATCH):
        indices = torch.arange(start, min(start + EVALUATION_BATCH, len(test.test)))
        predicted = model(model.preprocess(test.test.read(indices))).argmax(dim=1)
        right += int((predicted == test.test.labels[indices]).sum())
    found = right / len(test.test)
    if abs(found - parts.accuracy) > SLACK:
        raise InputError(
            f"the model of client {parts.client} has an accuracy of {found:.4f} on the test set, the run "
            f"measured {parts.accuracy:.4f}: the data are not those of the run, or its files are mixed; "
            "check --data-dir"
        )
    return True
