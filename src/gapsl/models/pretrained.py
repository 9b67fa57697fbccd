"""Start from weights that are there: take what fits, resize what can be, refuse what would be a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.models.cut import Split
from gapsl.models.stored import is_run_of_devices, stored_parts
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
    """Load a `.safetensors`, `.pt` or `.pth` file, an export or a run into a model or its parts.

    Names and shapes must match, but for the last layer and for what a transformer can resize; what is refused
    changes nothing. Of a run it is the client-side model of its first device: see `load_own_start`.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        return _load(path, [(model, read_weights(path))])
    parts = stored_parts(path)
    client, server = parts.client, parts.server
    if server is not None and parts.head is not None:
        server = {**server, **parts.head}
    if not isinstance(model, Split):
        return _load(path, [(model, {**(client or {}), **(server or {})})])
    both = [(model.device, client), (model.server, server)]
    return _load(path, [(part, weights) for part, weights in both if weights is not None])


def load_own_start(model: nn.Module, head: nn.Module | None, path: str | Path, device: int) -> None:
    """Let a device start from its own client-side model where `path` is a run that has one for each."""
    folder = Path(path).expanduser()
    if not is_run_of_devices(folder):
        return
    parts = stored_parts(folder, device)
    assert parts.client is not None
    if parts.head is not None and head is None:
        raise InputError(
            f"the devices of {folder} have the last layer, each its own (labels = device); start with the "
            f"same, or from one of them: gapsl export {folder} --client 0 --out FOLDER"
        )
    _load(folder, [(model, parts.client)])
    if head is not None and parts.head is not None:
        _load(folder, [(head, parts.head)])


def _load(path: Path, targets: list[tuple[nn.Module | Split, dict[str, Tensor]]]) -> LoadReport:
    """Load weights into modules, into all of them or none."""
    fitted = [_fitting(path, model, weights) for model, weights in targets]
    with torch.no_grad():
        for places, fitting, _ in fitted:
            for name, weight in fitting.items():
                places[name].copy_(weight)
    return LoadReport(
        loaded=tuple(name for _, fitting, _ in fitted for name in fitting),
        skipped=tuple(name for places, fitting, _ in fitted for name in places if name not in fitting),
        unused=tuple(name for _, fitting, weights in fitted for name in weights if name not in fitting),
    )


Fitting = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]  # places, what fits them, the file


def _fitting(path: Path, model: nn.Module | Split, weights: dict[str, Tensor]) -> Fitting:
    """Return a model's tensors and what of the weights fits them, or say what does not."""
    places = _places(model)
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
            "(name, cut, width, norm, input channels), or give another file"
        )
    return places, fitting, weights


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors by name, without ever running code that the file may carry.

    A training script's wrapper and the prefix of DataParallel are taken off.
    """
    if not path.is_file():
        raise InputError(
            f"there is no weights file, run or export {path}; check the path (nothing is downloaded)"
        )
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
            f"both parts have a parameter named {_some(twice)}, so a file's names do not say whose they "
            "are; load each part by itself: load_pretrained(split.device, ...), then (split.server, ...)"
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
