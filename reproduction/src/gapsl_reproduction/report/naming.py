"""What things are called in tables and figures."""

from __future__ import annotations

from collections.abc import Mapping

from gapsl.data.sources.cifar_classes import CIFAR10_CLASSES
from gapsl_reproduction.catalogue import Scale
from gapsl_reproduction.store import Result

LINES: Mapping[str, str] = {
    "gapsl": "GAPSL",
    "sfl": "SFL",
    "epsl": "EPSL",
    "vanilla": "vanilla SL",
    "psl": "PSL",
    "non-lgi": "Non-LGI",
    "rand-lgi": "Rand-LGI",
    "non-gda": "Non-GDA",
    "rand-gda": "Rand-GDA",
    "psl prior": "PSL, calibrated",
    "sfl prior": "SFL, calibrated",
    "single": "one device alone",
    "recommended unled": "recommended, everybody leading",
    "recommended unpulled": "recommended without probes",
    "recommended pulled": "recommended with a pull",
    "recommended gapsl": "recommended with GAPSL",
    "recommended penalty": "recommended with GAPSL's regulariser",
    "recommended strong penalty": "recommended with the regulariser a hundred times as strong",
}
# What is recommended with a part taken away or added.
PARTS: Mapping[str, str] = {
    "recommended": "recommended",
    "recommended unpulled": "without probes",
    "recommended unled": "everybody leads",
    "recommended pulled": "everybody leads, and devices are pulled instead of solving",
    "recommended uncalibrated": "devices' loss not calibrated",
    "recommended unbalanced": "server's loss not balanced",
    "recommended frozen": "halves frozen, server's loss balanced",
    "recommended gapsl": "and GAPSL on the server's gradients",
    "recommended penalty": "and GAPSL's regulariser, nobody excluded",
    "recommended strong penalty": "the same a hundred times as strong",
    "recommended sfl": "SFL, calibrated and balanced alike",
    "psl prior": "PSL, both halves calibrated",
    "sfl prior": "SFL, both halves calibrated",
}
MODELS: Mapping[str, str] = {"vgg16": "VGG-16", "vit-base": "ViT-Base", "vit-micro": "ViT"}
DATASETS: Mapping[str, str] = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
PARTITIONS: Mapping[str, str] = {"iid": "IID", "non-iid": "non-IID"}


def line_name(line: str) -> str:
    """Return a line's name in print: "recommended sfl" is "recommended SFL"."""
    if line in LINES:
        return LINES[line]
    first, _, rest = line.partition(" ")
    return f"{first} {LINES[rest]}" if rest in LINES else line


def part_name(line: str) -> str:
    """Return what a line has less or more than what is recommended."""
    return PARTS[line]


def workload_name(workload: str, scale: Scale) -> str:
    """Return a workload's dataset and model, as they are at this scale."""
    settings = scale.workloads[workload].settings
    dataset, model = settings["dataset"], settings["model"]
    return f"{DATASETS.get(dataset, dataset)}, {MODELS.get(model, model)}"


def class_name(result: Result, index: int) -> str:
    """Return the name of a class, its number where names are not known."""
    known = result["config"].get("dataset") == "cifar10"
    return CIFAR10_CLASSES[index] if known else f"class {index}"


def seeds_name(count: int) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{count} seed{'' if count == 1 else 's'}"
