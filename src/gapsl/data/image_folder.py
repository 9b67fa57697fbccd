"""A folder of images by class: PATH/train/<class>/ and PATH/test/<class>/, or PATH/<class>/ alone."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.common.streams import numpy_stream
from gapsl.data.download import Places
from gapsl.data.partitioners import interleave
from gapsl.data.samples import ArraySamples, Source

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
GREY = {"1", "L", "LA", "I;16"}  # modes of pillow
TEST_FRACTION = 0.2  # where the folder has no test part of its own

Labelled = list[tuple[Path, int]]


def load_folder(places: Places, argument: str) -> Source:
    """Return the images under `PATH`, or under `PATH?size=32` at that size.

    All are brought to one size, the most common one unless it is given, and to colour unless every
    one is grey. Mean and std are those of the training images.
    """
    name, _, options = argument.partition("?")
    size = _parse_size(options)
    root = Path(name).expanduser()
    if not name or not root.is_dir():
        raise InputError(f"folder:{name}: no such folder; write folder:PATH, PATH holding a folder per class")
    classes, train, test = _list_parts(root)
    sizes: Counter[tuple[int, int]] = Counter()
    mode = "L"
    for path, _ in train + test:
        with open_image(path) as image:  # reads the header alone
            sizes[image.size] += 1
            mode = mode if image.mode in GREY else "RGB"
    size = size or sizes.most_common(1)[0][0]
    inputs, labels = _read(train, size, mode)
    scaled = inputs.transpose(1, 0, 2, 3).reshape(inputs.shape[1], -1) / np.float32(255)
    return Source(
        name=f"folder:{argument}",
        train=ArraySamples(inputs, labels),
        test=ArraySamples(*_read(test, size, mode)),
        classes=classes,
        mean=tuple(float(m) for m in scaled.mean(axis=1, dtype=np.float64)),
        # A constant channel has no spread to divide by.
        std=tuple(float(s) or 1.0 for s in scaled.std(axis=1, dtype=np.float64)),
    )


def _parse_size(options: str) -> tuple[int, int] | None:
    if not options:
        return None
    key, _, value = options.partition("=")
    if key != "size" or not value.isdecimal() or not 1 <= int(value) <= 4096:
        raise InputError(f"?{options}: write ?size=PIXELS with 1 to 4096 pixels, for example ?size=32")
    return int(value), int(value)


def _list_parts(root: Path) -> tuple[tuple[str, ...], Labelled, Labelled]:
    has = [part for part in ("train", "test") if (root / part).is_dir()]
    if len(has) == 1:
        raise InputError(
            f"{root} has {has[0]}/ alone; give both train/ and test/, or the class folders directly in it"
        )
    base = root / "train" if has else root
    classes = tuple(sorted(_folders(base)))
    if not classes:
        raise InputError(f"{base} has no folders; put the images of each class in a folder of that name")
    images = _list_images(base, classes)
    present = {label for _, label in images}
    if empty := [name for label, name in enumerate(classes) if label not in present]:
        raise InputError(
            f"{base / empty[0]} has no images ({', '.join(sorted(SUFFIXES))}); add some or remove it"
        )
    if has:
        if unknown := sorted(_folders(root / "test") - set(classes)):
            raise InputError(
                f"{root / 'test' / unknown[0]} is a class that train/ does not have; add or remove it"
            )
        return classes, images, _list_images(root / "test", classes)
    order = interleave(np.array([label for _, label in images]), numpy_stream(0, "folder-split"))
    cut = round(TEST_FRACTION * len(images))
    return classes, [images[i] for i in np.sort(order[cut:])], [images[i] for i in np.sort(order[:cut])]


def _folders(base: Path) -> set[str]:
    return {path.name for path in base.iterdir() if path.is_dir() and not path.name.startswith(".")}


def _list_images(base: Path, classes: Sequence[str]) -> Labelled:
    return [
        (path, label)
        for label, name in enumerate(classes)
        if (base / name).is_dir()
        for path in sorted((base / name).iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]


def open_image(path: Path) -> Image:
    """Open an image; its pixels are read later."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError('images need pillow; pip install "gapsl[datasets]"') from None
    if not path.is_file():  # a pipe would be waited for
        raise InputError(f"{path} is no file; replace or remove it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images, which are read; larger ones are an error
            return Image.open(path)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{path} is not an image that can be read ({error}); replace or remove it"
        ) from error


def _read(images: Labelled, size: tuple[int, int], mode: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    width, height = size
    channels = 1 if mode == "L" else 3
    inputs = np.empty((len(images), channels, height, width), np.uint8)
    for row, (path, _) in enumerate(images):
        inputs[row] = read_pixels(path, size, mode)
    return inputs, np.array([label for _, label in images], np.int64)


def read_pixels(path: Path, size: tuple[int, int], mode: str) -> NDArray[np.uint8]:
    """Return an image at this size (width, height) and in this mode, L or RGB: channels, height, width."""
    with open_image(path) as image:
        if image.mode in ("I", "F"):
            raise InputError(
                f"{path} does not say which number is white; save it with 8 or 16 bits per channel"
            )
        try:
            pixels = np.asarray(_eight_bits(image).convert(mode).resize(size))
        except (OSError, SyntaxError, ValueError) as error:  # what pillow raises on damaged pixels
            raise InputError(f"{path} is damaged ({error}); replace or remove it") from error
    return pixels.reshape(size[1], size[0], -1).transpose(2, 0, 1)


def _eight_bits(image: Image) -> Image:
    """Return an image of bytes, also of one with 16 bits, in which pillow takes all above 255 for white."""
    if not image.mode.startswith("I;16"):
        return image
    from PIL.Image import fromarray

    return fromarray((np.asarray(image) >> 8).astype(np.uint8))
