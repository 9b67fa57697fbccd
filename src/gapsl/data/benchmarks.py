"""CIFAR-10, CIFAR-100 and Fashion-MNIST from their official files, found on this machine or downloaded."""

from __future__ import annotations

import gzip
import math
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.data.download import Places, file_md5
from gapsl.data.samples import ArraySamples, Source

PIXELS = 3 * 32 * 32
DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error)

CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
FASHION_CLASSES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"

FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_FOLDER = "fashion-mnist"
DEBIAN = Path("/usr/share/datasets")  # of the package dataset-fashion-mnist

# file: (md5 of the official .gz, shape). Files found on the machine are held to their shape, not to the
# md5, because Debian compressed them anew.
FASHION_FILES = {
    "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", (60_000, 28, 28)),
    "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", (60_000,)),
    "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", (10_000, 28, 28)),
    "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", (10_000,)),
}


@dataclass(frozen=True)
class Layout:
    """How a CIFAR is stored: rows of label bytes, then the R, G and B planes."""

    name: str
    folder: str
    archive: str
    md5: str
    train: Mapping[str, int]  # file name: rows
    test: Mapping[str, int]
    label_bytes: int  # the last of them is the label; CIFAR-100 has the coarse one before it
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def row_bytes(self) -> int:
        """The length of one sample."""
        return self.label_bytes + PIXELS


CIFAR10 = Layout(
    name="cifar10",
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    train={f"data_batch_{i}.bin": 10_000 for i in range(1, 6)},
    test={"test_batch.bin": 10_000},
    label_bytes=1,
    classes=tuple(CIFAR10_CLASSES.split()),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

CIFAR100 = Layout(
    name="cifar100",
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    train={"train.bin": 50_000},
    test={"test.bin": 10_000},
    label_bytes=2,
    classes=tuple(CIFAR100_CLASSES.split()),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def load_cifar10(places: Places, argument: str = "") -> Source:
    """Return CIFAR-10."""
    return load_cifar(CIFAR10, places)


def load_cifar100(places: Places, argument: str = "") -> Source:
    """Return CIFAR-100 with its 100 fine labels."""
    return load_cifar(CIFAR100, places)


def load_cifar(layout: Layout, places: Places) -> Source:
    """Return a CIFAR dataset from the first place that has it, in a folder or still in the archive."""
    found = places.find(layout.folder, layout.archive)
    if found is None:
        url = f"https://www.cs.toronto.edu/~kriz/{layout.archive}"
        found = places.fetch(url, layout.archive, layout.md5)
    files = _read_files(found, layout)
    return Source(
        name=layout.name,
        train=_decode([files[name] for name in layout.train], layout),
        test=_decode([files[name] for name in layout.test], layout),
        classes=layout.classes,
        mean=layout.mean,
        std=layout.std,
        augment="crop-flip",
    )


def _read_files(found: Path, layout: Layout) -> dict[str, bytes]:
    """Return all files of a CIFAR; none is read that has not the size it must have."""
    rows = {**layout.train, **layout.test}
    packed = not found.is_dir()
    fix = f"remove {found} to have it downloaded again" if packed else f"extract {layout.archive} again"
    if packed and (md5 := file_md5(found)) != layout.md5:
        size = found.stat().st_size
        raise InputError(f"{found} ({size} bytes) has md5 {md5}, the official one {layout.md5}; {fix}")
    files: dict[str, bytes] = {}
    try:
        for name, size, stream in _in_archive(found, layout) if packed else _in_folder(found, rows):
            if name in rows and size != rows[name] * layout.row_bytes:
                raise InputError(
                    f"{name} in {found} has {size} bytes, expected {rows[name] * layout.row_bytes}: it is "
                    f"truncated or another file; {fix}"
                )
            if name in rows:
                files[name] = stream.read()
    except DAMAGED as error:
        raise InputError(f"{found} cannot be read ({error}); {fix}") from error
    if missing := [name for name in rows if name not in files]:
        raise InputError(f"{', '.join(missing)} missing in {found}; {fix}")
    return files


def _in_folder(folder: Path, names: Mapping[str, int]) -> Iterator[tuple[str, int, IO[bytes]]]:
    for path in (folder / name for name in names):
        if path.is_file():
            with path.open("rb") as stream:
                yield path.name, path.stat().st_size, stream


def _in_archive(archive: Path, layout: Layout) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the members straight from the stream: nothing is extracted, so no name can lead elsewhere."""
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            folder, _, name = member.name.removeprefix("./").rpartition("/")
            if folder == layout.folder and member.isfile() and (stream := tar.extractfile(member)):
                yield name, member.size, stream


def _decode(files: list[bytes], layout: Layout) -> ArraySamples:
    rows: NDArray[np.uint8] = np.concatenate(
        [np.frombuffer(raw, np.uint8).reshape(-1, layout.row_bytes) for raw in files]
    )
    images = np.ascontiguousarray(rows[:, layout.label_bytes :]).reshape(-1, 3, 32, 32)
    return ArraySamples(images, rows[:, layout.label_bytes - 1].astype(np.int64))


def load_fashion_mnist(places: Places, argument: str = "") -> Source:
    """Return Fashion-MNIST: 60,000 and 10,000 grey images of 28×28."""

    def part(prefix: str) -> ArraySamples:
        images = _fashion_file(f"{prefix}-images-idx3-ubyte", places)
        labels = _fashion_file(f"{prefix}-labels-idx1-ubyte", places)
        return ArraySamples(images[:, None], labels.astype(np.int64))

    classes = tuple(FASHION_CLASSES.split(","))
    return Source("fashion-mnist", part("train"), part("t10k"), classes, mean=(0.2860,), std=(0.3530,))


def _fashion_file(name: str, places: Places) -> NDArray[np.uint8]:
    md5, shape = FASHION_FILES[name]
    names = (f"{FASHION_FOLDER}/{name}.gz", f"{FASHION_FOLDER}/{name}", f"{name}.gz", name)
    found = places.find(*names, also=[DEBIAN])
    return read_idx(found or places.fetch(f"{FASHION_URL}{name}.gz", names[0], md5), shape)


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of bytes, compressed or not, whose header must announce exactly this shape.

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
    except DAMAGED as error:
        raise InputError(f"{path} ({path.stat().st_size} bytes) cannot be read ({error}); {fix}") from error
    if len(raw) != size:
        amount = f"{len(header) + len(raw)} bytes" if len(raw) < size else "more bytes"
        raise InputError(f"{path} holds {amount}, expected {len(header) + size}; {fix}")
    return np.frombuffer(raw, np.uint8).reshape(shape).copy()  # a copy, because torch wants it writable
