"""What a method costs: bytes and time as they were measured, floating-point operations as counted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gapsl.models import build_model
from gapsl.run.config import Config
from gapsl_reproduction.report.frame import SKEWED, Evidence, line_name
from gapsl_reproduction.report.stats import mean
from gapsl_reproduction.report.wording import table
from gapsl_reproduction.scales import Scale

SHAPES = {"cifar10": ((3, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "digits": ((1, 8, 8), 10)}
BUILT = ("cut", "width", "norm", "dropout", "patch")
NOTE = (
    "Of a whole run at alpha 0.1, evaluation aside: bytes of all devices together, averaging included, and "
    "the time of the fastest run on one core with another run beside it. MFLOP are those of one training "
    "sample, forward and backward; what GAPSL adds on the server (a second backward pass over the kept "
    "devices) and the few rows of probes are not in them."
)


def costs(evidence: Evidence, lines: tuple[str, ...]) -> str:
    """Return the table of costs, a row a method that was run."""
    rows = []
    operations = count(evidence.scale)
    for line in lines:
        sent, received = (mean(evidence.values(line, SKEWED, name)) for name in ("sent", "received"))
        seconds = evidence.values(line, SKEWED, "seconds")
        if sent is None or received is None:
            continue
        device = operations["forward" if line == "frozen" else "device"]
        rows.append(
            [
                line_name(line),
                *(f"{megabytes / 1e3:,.2f}" if sent else "–" for megabytes in (sent, received)),
                f"{device / 1e6:,.1f}",
                f"{operations['server'] / 1e6:,.1f}",
                f"{min(seconds.values()) / 60:,.0f}",
            ]
        )
    if not rows:
        return ""
    headings = [evidence.scale.model, "GB up", "GB down", "device MFLOP", "server MFLOP", "minutes"]
    return f"## Costs\n\n{NOTE}\n\n{table(headings, rows)}"


def count(scale: Scale) -> Mapping[str, float]:
    """Return the operations of a sample: a device's forward pass, all of its work, and the server's."""
    settings = scale.workloads["cifar10"].settings
    return _count(settings["dataset"], settings["model"], *(settings.get(name) for name in BUILT))


@cache
def _count(dataset: str, model: str, *values: Any) -> Mapping[str, float]:
    shape, classes = SHAPES[dataset]
    given = {name: value for name, value in zip(BUILT, values, strict=True) if value is not None}
    config = Config(model=model, **given)
    halves = build_model(
        model, classes=classes, input_shape=shape, **{name: getattr(config, name) for name in BUILT}
    )
    forward, both, server = (FlopCounterMode(display=False) for _ in range(3))
    sample = torch.zeros(2, *shape)
    with forward, torch.no_grad():
        halves.device(sample)
    with both:
        activations = halves.device(sample)
        activations.backward(torch.ones_like(activations))
    received = activations.detach().requires_grad_()
    with server:
        halves.server(received).sum().backward()
    found = {"forward": forward, "device": both, "server": server}
    return {name: counter.get_total_flops() / len(sample) for name, counter in found.items()}
