"""Start from weights in a file: take what fits, resize what can be, refuse what would be a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.models.cut import Split
from gapsl.models.vit import Front, resize_patches, resize_positions

# The last layer depends on the classes, so it alone may differ between the file and the model.
HEADS = ("classifier", "head", "fc")
# Counts that nothing depends on; files from before PyTorch 0.4.1 do not have them.
OPTIONAL = "num_batches_tracked"
WRAPPERS = ("state_dict", "model")  # how training scripts wrap their weights
PREFIX = "module."  # what DataParallel puts before every name


@dataclass(frozen=True)
class LoadReport:
    """What came from the file and what did not, by parameter name."""

    loaded: tuple[str, ...]
    skipped: tuple[str, ...]  # of the model: left at their initial values
    unused: tuple[str, ...]  # of the file: the model has no place for them


def load_pretrained(model: nn.Module | Split, path: str | Path) -> LoadReport:
    """Load a `.safetensors`, `.pt` or `.pth` file into a model or its halves.

    Names and shapes must match, but for the head and for what a transformer can resize; a file that is
    refused changes nothing.
    """
    path = Path(path)
    places = _places(model)
    weights = read_weights(path)
    if not places.keys() & weights.keys():
        raise InputError(
            f"{path} has no parameter in common with the model: it has {_some(weights)}, the "
            f"model {_some(places)}; "
            "give a file of the same architecture (torchvision's names for VGG, timm's for ViT)"
        )
    fitting: dict[str, Tensor] = {}
    problems = []
    for name, place in places.items():
        found = _fit(name, weights[name], place, model) if name in weights else None
        if found is not None and found.shape == place.shape:
            fitting[name] = found
        elif name.split(".")[0] not in HEADS and not (name not in weights and name.endswith(OPTIONAL)):
            shape = tuple(weights[name].shape) if name in weights else "missing"
            problems.append(f"{name} ({shape} in the file, {tuple(place.shape)} in the model)")
    if problems:
        raise InputError(
            f"{path} does not fit the model: {_some(problems)}; build the model with the file's architecture "
            "(name, width 1, norm, input channels), or give another file"
        )
    with torch.no_grad():
        for name, weight in fitting.items():
            places[name].copy_(weight)
    return LoadReport(
        loaded=tuple(fitting),
        skipped=tuple(name for name in places if name not in fitting),
        unused=tuple(name for name in weights if name not in fitting),
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors by name, without ever running code that the file may carry.

    A training script's wrapper and the prefix of DataParallel are taken off.
    """
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


def _places(model: nn.Module | Split) -> dict[str, Tensor]:
    """Return the model's own tensors by name, to be written into."""
    if not isinstance(model, Split):
        return dict(model.state_dict())
    device, server = model.device.state_dict(), model.server.state_dict()
    twice = device.keys() & server.keys()
    if twice:
        raise InputError(
            f"both halves have a parameter named {_some(twice)}, so a file's names do not say whose they "
            "are; load each half by itself: load_pretrained(split.device, ...), then (split.server, ...)"
        )
    return {**device, **server}


def _fit(name: str, weight: Tensor, place: Tensor, model: nn.Module | Split) -> Tensor | None:
    """Return the weight in the model's shape where a transformer's image or patch size may differ."""
    front = model.device if isinstance(model, Split) else model
    if isinstance(front, Front) and weight.dim() == place.dim():
        if name == "pos_embed":
            return resize_positions(weight, front.grid)
        if name == "patch_embed.proj.weight":
            return resize_patches(weight, (place.shape[2], place.shape[3]))
    return weight


def _some(names: Mapping[str, Tensor] | list[str] | set[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
