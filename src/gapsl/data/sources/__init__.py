"""The datasets that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gapsl.common.registry import Registry
from gapsl.data.download import Places, Progress
from gapsl.data.source import Source
from gapsl.data.sources.built_in import load_described, load_digits
from gapsl.data.sources.cifar import load_cifar10, load_cifar100
from gapsl.data.sources.fashion import load_fashion_mnist
from gapsl.data.sources.folder import load_folder

__all__ = ["SOURCES", "Loader", "load_source"]

# A loader gets the search folders and what follows the colon of its name ("" if it has none).
Loader = Callable[[Places, str], Source]

SOURCES: Registry[Loader] = Registry("dataset", group="gapsl.datasets")
SOURCES.register("digits", load_digits)
SOURCES.register("fashion-mnist", load_fashion_mnist)
SOURCES.register("cifar10", load_cifar10, aliases=["cifar-10"])
SOURCES.register("cifar100", load_cifar100, aliases=["cifar-100"])
SOURCES.register("described:", load_described)
SOURCES.register("folder:", load_folder)  # a name with a colon takes an argument


def load_source(
    name: str,
    *,
    data_dir: str | Path | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Source:
    """Return the dataset of this name, from this machine if its files are here, else downloaded."""
    key, colon, argument = name.partition(":")
    places = Places(Path(data_dir).expanduser() if data_dir is not None else None, download, progress)
    return SOURCES[key + colon](places, argument)
