"""Read named tensors from a file, without ever running code that the file may carry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from gapsl.common.errors import InputError

WRAPPERS = ("state_dict", "model")  # how training scripts wrap their weights
PREFIX = "module."  # what DataParallel puts before every name


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors by name, without a wrapper or the prefix of DataParallel."""
    if not path.is_file():
        raise InputError(f"there is no weights file {path}; check the path (nothing is downloaded)")
    if path.suffix not in {".safetensors", ".pt", ".pth"}:
        raise InputError(
            f"{path} is no weights file that can be read safely; give a .safetensors, .pt or .pth file"
        )
    content: object
    try:
        if path.suffix == ".safetensors":
            content = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken file makes the readers raise almost anything
        if "weights only" in str(error).lower():  # torch's refusal of anything but tensors
            raise InputError(
                f"{path} holds Python objects, not only tensors, and reading it could run code it carries, "
                "so it was not read; save the state_dict alone, torch.save(model.state_dict(), path), or as "
                ".safetensors"
            ) from error
        raise InputError(
            f"{path} cannot be read as a {path.suffix} file, it is damaged or something else: {error}; "
            "fetch or save it anew"
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise InputError(
            f"{path} holds no plain state_dict (names and tensors); save one: "
            "torch.save(model.state_dict(), path)"
        )
    if content and all(name.startswith(PREFIX) for name in content):
        content = {name.removeprefix(PREFIX): value for name, value in content.items()}
    return dict(content)
