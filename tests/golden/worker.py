"""A process that trains reference runs, with arithmetic that is the same on most machines.

    python tests/golden/worker.py < runs.json-like    # trains all, prints their hashes as JSON
    python tests/golden/worker.py --kill FOLDER ROUND < entry    # dies with SIGKILL after that round

`golden.py` starts it with the environment that has to be there before torch is. Nothing of gapsl is used here
but what `import gapsl` promises.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import gapsl


def main() -> None:
    asked = json.load(sys.stdin)
    if sys.argv[1:2] == ["--kill"]:
        folder, round = sys.argv[2:]
        train(asked, out=folder, observers=[Killer(int(round))])
        sys.exit("the run ended before the kill")
    runs = {}
    for name, entry in asked.items():
        try:
            result = train(entry)
        except Exception as error:  # the others are trained all the same
            traceback.print_exc()
            runs[name] = {"weights_sha256": f"none: {error}"}
            continue
        settings = {key: value for key, value in result.config.items() if key != "custom"}
        runs[name] = {"settings": settings, "weights_sha256": result.final.weights_sha256}
    json.dump({"fingerprints": fingerprints(), "machine": machine(), "runs": runs}, sys.stdout)


def train(entry: Mapping[str, Any], **more: Any) -> Any:
    """Train with the settings of an entry of the table, and the objects it names."""
    settings = dict(entry["settings"])
    if "given" in entry:
        settings |= {"dataset": images((3, 32, 32) if entry["given"] == "data" else (1, 8, 8))}
    if entry.get("given") == "model and data":
        settings |= {"model": perceptron()}
    result = gapsl.train(**settings, **more)
    assert result is not None
    return result


class Killer(gapsl.Observer):
    """Ends the process as `kill -9` does, when a round is in the records and its checkpoint is not begun."""

    def __init__(self, round: int) -> None:
        self._round = round

    def round(self, record: Any) -> None:
        if record.round == self._round:
            os.kill(os.getpid(), signal.SIGKILL)


def images(shape: tuple[int, ...]) -> tuple[TensorDataset, TensorDataset]:
    """Return training and test samples of three classes."""
    random = np.random.default_rng(7)
    labels = random.integers(0, 3, 160)
    pixels = random.uniform(0, 0.5, (160, *shape)) + labels.reshape(-1, 1, 1, 1) / 4
    inputs = torch.from_numpy(pixels.astype("float32"))
    targets = torch.from_numpy(labels)
    return TensorDataset(inputs[:120], targets[:120]), TensorDataset(inputs[120:], targets[120:])


def perceptron() -> nn.Module:
    """Return a model with weights that are known."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 3))
    random = np.random.default_rng(8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(random.uniform(-0.1, 0.1, parameter.shape)))
    return model


# --- what this machine computes


def fingerprints() -> dict[str, str]:
    """Return what tells apart machines that compute differently.

    `arithmetic` decides for most runs. Masks of dropout come from a generator that torch takes on processors
    of Intel only, so runs with dropout have a fingerprint of their own: `dropout`.
    """
    torch.set_num_threads(1)
    torch.manual_seed(5)
    arithmetic = digest([*computed(torch.float32), *computed(torch.float64), torch.randn(100), torch.rand(9)])
    drawn = np.random.default_rng(9).dirichlet([0.3] * 5, 9)
    arithmetic = digest([torch.from_numpy(drawn)], arithmetic)
    torch.manual_seed(6)
    return {"arithmetic": arithmetic, "dropout": digest([F.dropout(torch.ones(8, 16), 0.3)], arithmetic)}


def computed(kind: torch.dtype) -> Iterable[Tensor]:
    """Compute a little of everything that a run computes, forward, backward and a step of an optimizer."""
    random = np.random.default_rng(4)

    def drawn(*shape: int) -> Tensor:
        return torch.from_numpy(random.standard_normal(shape)).to(kind)

    for rows, layout in (
        (4, torch.contiguous_format),
        (16, torch.contiguous_format),
        (16, torch.channels_last),
    ):
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1), nn.GroupNorm(4, 12), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(48, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 24), nn.Tanh(),
            nn.Linear(24, 10),
        ).to(kind)  # fmt: skip
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(0.3 * drawn(*parameter.shape))
        network = network.to(memory_format=layout)  # type: ignore[call-overload]
        steps = [
            torch.optim.SGD(network[:5].parameters(), lr=0.05, momentum=0.9, weight_decay=0.01),
            torch.optim.AdamW(network[5:].parameters(), lr=0.01),
        ]
        inputs = drawn(rows, 3, 8, 8).to(memory_format=layout).requires_grad_()
        for _ in range(2):
            outputs = network(inputs)
            loss = F.cross_entropy(outputs, torch.arange(rows) % 10)
            (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
            yield from (outputs, loss, gradient)
            (loss + gradient.square().sum().sqrt()).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            for step in steps:
                step.step()
                step.zero_grad()
        yield from network.state_dict().values()
    matrix, query = drawn(30, 20), drawn(4, 2, 5, 8)
    yield from (
        matrix.T @ matrix,
        matrix.softmax(1),
        matrix.exp().log1p(),
        matrix.norm(),
        matrix.mean(),
        matrix.var(),
    )
    yield from (
        torch.linalg.solve(matrix.T @ matrix + torch.eye(20, dtype=kind), matrix.T),
        matrix.tanh().acos(),
    )
    yield F.scaled_dot_product_attention(query, query.flip(0), query)


def digest(tensors: Iterable[Tensor], before: str = "") -> str:
    """Return a short hash of these numbers, to the bit."""
    found = hashlib.sha256(before.encode())
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def machine() -> dict[str, str]:
    """Say where the numbers come from, for people."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {
        "gapsl": gapsl.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": models[0] if models else "unknown",
    }


if __name__ == "__main__":
    main()
