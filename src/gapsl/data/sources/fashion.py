"""Fashion-MNIST from its four official idx files, compressed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.data.download import Places
from gapsl.data.samples import ArraySamples
from gapsl.data.source import Source

URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FOLDER = "fashion-mnist"
DEBIAN = Path("/usr/share/datasets")  # of the package dataset-fashion-mnist

# file: (md5 of the official .gz, shape). Files found on the machine are held to their shape, not to the
# md5, because Debian compressed them anew.
FILES = {
    "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", (60_000, 28, 28)),
    "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", (60_000,)),
    "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", (10_000, 28, 28)),
    "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", (10_000,)),
}

CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def load_fashion_mnist(places: Places, argument: str = "") -> Source:
    """Return Fashion-MNIST: 60,000 and 10,000 grey images of 28×28."""
    return Source(
        name="fashion-mnist",
        train=_load_part("train", places),
        test=_load_part("t10k", places),
        classes=CLASSES,
        mean=(0.2860,),
        std=(0.3530,),
    )


def _load_part(prefix: str, places: Places) -> ArraySamples:
    images = _load_file(f"{prefix}-images-idx3-ubyte", places)
    labels = _load_file(f"{prefix}-labels-idx1-ubyte", places)
    return ArraySamples(images[:, None], labels.astype(np.int64))


def _load_file(name: str, places: Places) -> NDArray[np.uint8]:
    md5, shape = FILES[name]
    names = (f"{FOLDER}/{name}.gz", f"{FOLDER}/{name}", f"{name}.gz", name)
    found = places.find(*names, also=[DEBIAN])
    if found is None:
        found = places.fetch(f"{URL}{name}.gz", f"{FOLDER}/{name}.gz", md5)
    return read_idx(found, shape)


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of bytes, whose header must announce exactly this shape.

    Nothing is allocated by what the file says of itself: at most the expected bytes are read.
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)  # 8: unsigned bytes
    size = math.prod(shape)
    fix = f"remove {path} to have it downloaded again"
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if (found := file.read(len(header))) != header:
                raise InputError(
                    f"{path} starts with {found.hex()}, idx of shape {shape} with {header.hex()}; {fix}"
                )
            raw = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} ({path.stat().st_size} bytes) cannot be read ({error}); {fix}") from error
    if len(raw) != size:
        amount = f"{len(header) + len(raw)} bytes" if len(raw) < size else "more bytes"
        raise InputError(f"{path} holds {amount}, expected {len(header) + size}; {fix}")
    return np.frombuffer(raw, np.uint8).reshape(shape).copy()  # a copy, because torch wants it writable
