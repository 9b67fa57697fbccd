"""CIFAR-10 and CIFAR-100 from their official binary files, in a folder or still in the archive."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.data.download import Places, file_md5
from gapsl.data.samples import ArraySamples
from gapsl.data.source import Source

PIXELS = 3 * 32 * 32

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

CIFAR100_CLASSES = (
    *("apple", "aquarium_fish", "baby", "bear", "beaver"),
    *("bed", "bee", "beetle", "bicycle", "bottle"),
    *("bowl", "boy", "bridge", "bus", "butterfly"),
    *("camel", "can", "castle", "caterpillar", "cattle"),
    *("chair", "chimpanzee", "clock", "cloud", "cockroach"),
    *("couch", "crab", "crocodile", "cup", "dinosaur"),
    *("dolphin", "elephant", "flatfish", "forest", "fox"),
    *("girl", "hamster", "house", "kangaroo", "keyboard"),
    *("lamp", "lawn_mower", "leopard", "lion", "lizard"),
    *("lobster", "man", "maple_tree", "motorcycle", "mountain"),
    *("mouse", "mushroom", "oak_tree", "orange", "orchid"),
    *("otter", "palm_tree", "pear", "pickup_truck", "pine_tree"),
    *("plain", "plate", "poppy", "porcupine", "possum"),
    *("rabbit", "raccoon", "ray", "road", "rocket"),
    *("rose", "sea", "seal", "shark", "shrew"),
    *("skunk", "skyscraper", "snail", "snake", "spider"),
    *("squirrel", "streetcar", "sunflower", "sweet_pepper", "table"),
    *("tank", "telephone", "television", "tiger", "tractor"),
    *("train", "trout", "tulip", "turtle", "wardrobe"),
    *("whale", "willow_tree", "wolf", "woman", "worm"),
)


@dataclass(frozen=True)
class Layout:
    """How one of the two datasets is stored: rows of label bytes, then the R, G and B planes."""

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
    classes=CIFAR10_CLASSES,
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
    classes=CIFAR100_CLASSES,
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
    """Return a CIFAR dataset from the first place that has it."""
    found = places.find(layout.folder, layout.archive)
    if found is None:
        url = f"https://www.cs.toronto.edu/~kriz/{layout.archive}"
        found = places.fetch(url, layout.archive, layout.md5)
    files = _read_folder(found, layout) if found.is_dir() else _read_archive(found, layout)
    return Source(
        name=layout.name,
        train=_decode([files[name] for name in layout.train], layout),
        test=_decode([files[name] for name in layout.test], layout),
        classes=layout.classes,
        mean=layout.mean,
        std=layout.std,
        augment="crop-flip",
    )


def _read_folder(folder: Path, layout: Layout) -> dict[str, bytes]:
    files = {}
    for name, rows in {**layout.train, **layout.test}.items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path} is missing; extract {layout.archive} again, or remove {folder}")
        _check_size(
            str(path), path.stat().st_size, rows * layout.row_bytes, f"extract {layout.archive} again"
        )
        files[name] = path.read_bytes()
    return files


def _read_archive(archive: Path, layout: Layout) -> dict[str, bytes]:
    """Read the members straight from the stream: nothing is extracted, so no name can lead elsewhere."""
    fix = f"remove {archive} to have it downloaded again"
    if (found := file_md5(archive)) != layout.md5:
        size = archive.stat().st_size
        raise InputError(f"{archive} ({size} bytes) has md5 {found}, the official one {layout.md5}; {fix}")
    wanted = {f"{layout.folder}/{name}": name for name in (*layout.train, *layout.test)}
    expected = {**layout.train, **layout.test}
    files = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                name = wanted.get(member.name.removeprefix("./"))
                if name is None or not member.isfile():
                    continue
                _check_size(
                    f"{member.name} in {archive}", member.size, expected[name] * layout.row_bytes, fix
                )
                stream = tar.extractfile(member)
                files[name] = stream.read() if stream is not None else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{archive} cannot be read ({error}); {fix}") from error
    if missing := [name for name in expected if name not in files]:
        raise InputError(f"{archive} has no {', '.join(missing)}; {fix}")
    return files


def _check_size(what: str, size: int, expected: int, fix: str) -> None:
    if size != expected:
        raise InputError(
            f"{what} has {size} bytes, expected {expected}: it is truncated or another file; {fix}"
        )


def _decode(files: list[bytes], layout: Layout) -> ArraySamples:
    rows: NDArray[np.uint8] = np.concatenate(
        [np.frombuffer(raw, np.uint8).reshape(-1, layout.row_bytes) for raw in files]
    )
    images = np.ascontiguousarray(rows[:, layout.label_bytes :]).reshape(-1, 3, 32, 32)
    return ArraySamples(images, rows[:, layout.label_bytes - 1].astype(np.int64))
