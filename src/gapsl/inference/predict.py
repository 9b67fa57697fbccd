"""Predictions for image files: read as the model takes them, or refused with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gapsl.common.errors import InputError
from gapsl.data.image_folder import SUFFIXES, open_image, read_pixels
from gapsl.device.model_info import ModelInfo
from gapsl.inference.split_model import SplitModel
from gapsl.models.part import all_finite

BATCH = 64
MODES = {1: ("L", "1"), 3: ("RGB",)}  # of pillow, by channels


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of an image, the first one first."""

    image: Path
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


def predict(
    model: SplitModel, images: Sequence[str | Path], *, top: int = 3, fit: bool = False
) -> Iterator[Prediction]:
    """Yield predictions for image files, and for all images in folders.

    Images must have the model's size and colours; with `fit` they are brought to them.
    """
    if top < 1:
        raise InputError(f"--top {top}: give 1 or more")
    check_takes_images(model.info)
    paths = list(listed(images))
    for path in paths:  # all, before the first prediction is made
        check_image(path, model.info, fit)
    for start in range(0, len(paths), BATCH):
        some = paths[start : start + BATCH]
        raw = torch.from_numpy(np.stack([pixels(path, model.info) for path in some]))
        found = model.predict(raw)
        if not all_finite(found):
            raise InputError(
                "the model gives no numbers for these images: its weights, or the server, are broken"
            )
        best = found.topk(min(top, len(model.classes)), dim=1)
        for path, values, indices in zip(some, best.values.tolist(), best.indices.tolist(), strict=True):
            yield Prediction(path, tuple(model.classes[index] for index in indices), tuple(values))


def listed(images: Sequence[str | Path]) -> Iterator[Path]:
    """Yield files, and the images in folders and their folders, by name."""
    for one in map(Path, images):
        if one.is_file():
            yield one
        elif one.is_dir():
            found = sorted(path for path in one.rglob("*") if path.suffix.lower() in SUFFIXES)
            if not found:
                raise InputError(f"{one} has no images ({', '.join(sorted(SUFFIXES))}); give another folder")
            yield from found
        else:
            raise InputError(f"there is no image or folder {one}; check the path")


def check_takes_images(info: ModelInfo) -> None:
    """Refuse a model that is fed with something else."""
    if len(info.input_shape) != 3 or info.input_shape[0] not in MODES or info.inputs == "own":
        raise InputError(
            f"the model takes inputs of shape {info.input_shape} from a dataset of one's own, not image "
            "files; use it from Python: model = gapsl.load(...); model.predict(inputs)"
        )


def check_image(path: Path, info: ModelInfo, fit: bool) -> None:
    """Refuse an image that is not as the model takes it, unless it is to be made so."""
    channels, height, width = info.input_shape
    with open_image(path) as image:  # reads the header alone
        size, mode = image.size, image.mode
    if fit or (size == (width, height) and mode in MODES[channels]):
        return
    raise InputError(
        f"{path} has {size[0]}x{size[1]} pixels in mode {mode}, the model takes {width}x{height} in "
        f"{MODES[channels][0]}; bring images to that with --fit"
    )


def pixels(path: Path, info: ModelInfo) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return an image's bytes: channels, height, width."""
    channels, height, width = info.input_shape
    return read_pixels(path, (width, height), MODES[channels][0])
