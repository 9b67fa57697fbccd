"""What each codec does to what crosses the cut: bytes, error, and accuracy after training with it.

    python benchmarks/coding.py --data-dir DIR      # the table of README.md in this folder

Trains a run in one process whose cut writes and reads every activation and every gradient as the network
would, and measures on the tensors of that run: they are as large and as sparse as training makes them.
Nothing is timed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import gapsl
from gapsl.models import Split
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import decode, describe
from gapsl.network.protocol.settings import CODECS

CUT: dict[str, Any] = {"classes": 10, "input_shape": (3, 32, 32), "cut": 4, "width": 0.125, "norm": "group"}
SETTINGS: dict[str, Any] = {
    "dataset": "cifar10", "train_samples": 10000, "test_samples": 2000, "devices": 10, "batch_size": 16,
    "partition": "iid", "method": "psl", "device_gradient": "own",
    "device_optimizer": {"lr": 0.01, "schedule": "cosine", "warmup": 20},
    "server_optimizer": {"lr": 0.03, "schedule": "cosine", "warmup": 20},
}  # fmt: skip
EVERY = 37  # tensors: no divisor of ten devices, so that all of them are measured


@dataclass
class Tally:
    """What was measured of one kind of tensor."""

    seen: int = 0
    bytes: list[float] = field(default_factory=list)  # of those of the tensor
    zstd: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)  # of the tensor's norm

    def passed(self, tensor: Tensor, codec: wire.Codec) -> Tensor:
        """Return a tensor as it comes out at the other end."""
        header, data = describe(tensor, codec)
        out = decode(header, b"".join(data))
        self.seen += 1
        if self.seen % EVERY == 0 and tensor.norm() > 0:
            plain = tensor.numel() * tensor.element_size()
            self.bytes.append(header.bytes / plain)
            self.zstd.append(describe(tensor, codec, wire.ZSTD)[0].bytes / plain)
            self.error.append(float((out - tensor).norm() / tensor.norm()))
        return out


class Link(torch.autograd.Function):
    """Sends activations one way and gradients the other."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, wires: Wires) -> Tensor:
        ctx.wires = wires
        return wires.activations.passed(tensor, wires.codec)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.wires.gradients.passed(gradients[0], ctx.wires.codec), None


class Wires(nn.Module):
    """The cut of a model, with a codec on it; every copy counts for the same tallies."""

    def __init__(self, codec: wire.Codec) -> None:
        super().__init__()
        self.codec, self.activations, self.gradients = codec, Tally(), Tally()

    def __deepcopy__(self, memo: Any) -> Wires:
        return self

    def forward(self, tensor: Tensor) -> Tensor:
        sent: Tensor = Link.apply(tensor, self) if self.training else tensor  # type: ignore[no-untyped-call]
        return sent


def mean(numbers: list[float]) -> float:
    """Return the mean."""
    return sum(numbers) / len(numbers)


def main() -> None:
    """Measure every codec, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir")
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    print("| codec | tensor | bytes | with zstd | error | accuracy |\n| --- | --- | --- | --- | --- | --- |")
    for name, codec in CODECS.items():
        torch.manual_seed(0)
        model = gapsl.build_model("vgg16", **CUT)
        wires = Wires(codec)
        settings = {**SETTINGS, "rounds": options.rounds, "evaluate_every": options.rounds}
        result = gapsl.train(
            model=Split(nn.Sequential(model.device, wires), model.server),
            data_dir=options.data_dir,
            **settings,
        )
        assert result is not None
        accuracy = f"{100 * result['final']['device_mean']:.1f}"
        for kind, tally in (("activations", wires.activations), ("gradients", wires.gradients)):
            cells = f"{mean(tally.bytes):.3f} | {mean(tally.zstd):.3f} | {mean(tally.error):.1e}"
            print(f"| {name} | {kind} | {cells} | {accuracy} |", flush=True)


if __name__ == "__main__":
    main()
