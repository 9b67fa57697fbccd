"""A cut in rows that a table can print: what each half costs, what crosses, which layer is where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from gapsl.models.cut import Split, children_of, is_chain
from gapsl.models.cut_checks import CutReport


@dataclass(frozen=True)
class Layer:
    """One layer, or one block of them that no cut can fall into."""

    half: str  # "device" or "server"
    name: str  # as in the state_dict
    kind: str  # for example "Conv2d(3, 64, kernel_size=(3, 3), ...)"
    parameters: int


@dataclass(frozen=True)
class Description:
    """The rows of two tables: a quantity for each half, and the layers in running order."""

    quantities: list[tuple[str, str, str]]  # (quantity, the device's, the server's)
    crossing: list[tuple[str, str]]  # (quantity, what crosses the cut with every batch)
    layers: list[Layer]


def describe(split: Split, report: CutReport) -> Description:
    """Return a checked cut as rows of text."""
    halves = (report.device, report.server)
    shape = "×".join(map(str, report.activation_shape))
    return Description(
        quantities=[
            ("parameters", *_texts(half.parameters for half in halves)),
            ("buffers", *_texts(half.buffers for half in halves)),
            ("FLOPs a batch, forward", *_texts(half.flops for half in halves)),
        ],
        crossing=[
            ("activations a batch", f"{shape} {str(report.activation_dtype).removeprefix('torch.')}"),
            ("bytes a batch, each way", f"{report.activation_bytes:,}"),
        ],
        layers=[
            Layer(side, *row)
            for side, half in (("device", split.device), ("server", split.server))
            for row in _layers(half)
        ],
    )


def _texts(numbers: Iterator[int]) -> tuple[str, str]:
    device, server = (f"{number:,}" for number in numbers)
    return device, server


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, str, int]]:
    """Yield a half's own parameters, then its layers, going into chains only."""
    for name, parameter in module.named_parameters(recurse=False):
        yield prefix + name, f"Parameter({', '.join(map(str, parameter.shape))})", parameter.numel()
    for name, child in children_of(module):
        if is_chain(child):
            yield from _layers(child, f"{prefix}{name}.")
        else:
            settings = "" if list(child.children()) else child.extra_repr()
            count = sum(parameter.numel() for parameter in child.parameters())
            yield prefix + name, f"{type(child).__name__}({settings})", count
