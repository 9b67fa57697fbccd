"""Modules as files for others to run, and those files run again: safetensors, torch.export, ONNX."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.common.tensors import read_tensors, write_tensors
from gapsl.device.model_info import first_line
from gapsl.inference.manifest import Format
from gapsl.inference.split_model import filled

Run = Callable[[Tensor], Tensor]
# What the largest number of an output may be off by, relative to it (at least to 1).
TOLERANCES: dict[Format, float] = {"safetensors": 0.0, "torch": 1e-5, "onnx": 1e-4}
LOWEST_OPSET = 7  # that onnxruntime reads
NOISY = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def write_model(
    path: Path, model: nn.Module, example: Tensor, format: Format, opset: int | None = None
) -> None:
    """Write a module; `example` is a batch of its inputs."""
    model = model.eval()
    if format == "safetensors":
        write_tensors(path, model.state_dict())
        return
    with _quiet(), torch.no_grad():
        try:
            if format == "torch":
                torch.export.save(torch.export.export(model, (example,), dynamic_shapes=_batches()), path)
            else:
                _write_onnx(path, model, example, opset)
        except (InputError, OSError):  # a full disk is no fault of the model's
            raise
        except Exception as error:  # exporters raise almost anything
            raise InputError(
                f"{path.stem} cannot be written as {format}: {first_line(error)}; --format safetensors holds "
                "every model"
            ) from error


def runner(path: Path, model: nn.Module, format: Format) -> Run:
    """Return what a file computes, as whoever gets it would run it."""
    if format == "safetensors":
        return filled(model, read_tensors(path), str(path))
    if format == "torch":
        with _quiet():
            loaded: Run = torch.export.load(path).module()
        return loaded
    runtime = onnx_module("onnxruntime")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        why = str(error).strip()
        raise InputError(
            f"onnxruntime {runtime.__version__} does not run the exported {path.stem}: "
            f"{why if len(why) < 200 else '...' + why[-150:]} Leave out --opset, or give a lower one"
        ) from None
    return lambda inputs: torch.from_numpy(session.run(None, {"inputs": inputs.numpy()})[0])


def check_file(path: Path, model: nn.Module, example: Tensor, format: Format) -> float:
    """Run a file beside the module it was written from; return how far apart they are, or refuse it."""
    run, worst = runner(path, model, format), 0.0
    with torch.no_grad():
        for batch in (example, example[:1]):
            expected, found = model(batch), run(batch)
            if found.shape != expected.shape:
                raise InputError(
                    f"the exported {path.name} gives {tuple(found.shape)}, not {tuple(expected.shape)}"
                )
            apart = float((found - expected).abs().max() / expected.abs().max().clamp_min(1))
            if not apart <= TOLERANCES[format]:
                raise InputError(
                    f"the exported {path.name} computes something else: it is off by {apart:.1e}, and "
                    f"{TOLERANCES[format]:.0e} is allowed; use --format safetensors, and report it"
                )
            worst = max(worst, apart)
    return worst


def check_opset(opset: int | None, format: Format) -> None:
    """Refuse an operator set that cannot be written, before anything is."""
    if format != "onnx":
        if opset is not None:
            raise InputError(f"--opset is for --format onnx, not {format}; leave it out")
        return
    for name in ("onnx", "onnxscript", "onnxruntime"):
        onnx_module(name)
    newest = onnx_module("onnx").defs.onnx_opset_version()
    if opset is not None and not LOWEST_OPSET <= opset <= newest:
        raise InputError(
            f"there is no opset {opset} to write: give {LOWEST_OPSET} to {newest}, or leave out --opset"
        )


def onnx_module(name: str) -> Any:
    """Return a package of the extra `export`."""
    try:
        return import_module(name)
    except ImportError:
        raise InputError(f'--format onnx needs {name}; pip install "gapsl[export]"') from None


def _write_onnx(path: Path, model: nn.Module, example: Tensor, opset: int | None) -> None:
    torch.onnx.export(
        model,
        (example,),
        path,
        dynamo=True,
        dynamic_shapes=_batches(),
        opset_version=opset,
        input_names=["inputs"],
        output_names=["outputs"],
        external_data=False,
        verbose=False,
    )
    imported = {one.domain: one.version for one in onnx_module("onnx").load(path).opset_import}
    if opset is not None and imported.get("") != opset:  # the exporter only warns of that
        raise InputError(
            f"this model cannot be written with opset {opset}, only with {imported.get('')}; leave out "
            "--opset, or give a higher one"
        )


def _batches() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("batch", min=1)},)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' warnings to themselves: what they wrote is run and compared afterwards."""
    before = {name: logging.getLogger(name).level for name in NOISY}
    try:
        for name in NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
