"""What sketches do to angles and to the choice of devices, on the gradients of runs that train without them.

    python benchmarks/sketch.py --data-dir DIR      # the table of README.md in this folder

In every round of a GAPSL run the same choice is made from sketches of the round's gradients, with a memory of
its own. Cosines are off by at most the figure in 99 of 100 pairs; Jaccard is the common part of two sets of
devices, 1 where they are the same. Nothing is timed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

import gapsl
from gapsl.alignment import align, identify_leader, pairwise_angles
from gapsl.alignment.sketch import CountSketch
from gapsl.common.streams import torch_stream
from gapsl.device.exchange import Outcome
from gapsl.methods.contribution import Contribution
from gapsl.methods.gapsl import Gapsl

COMMON: dict[str, Any] = {
    "train_samples": 20000, "test_samples": 100, "evaluate_every": 100_000, "batch_size": 16,
    "partition": "dirichlet:0.1,min=16", "gapsl": {"penalty": "none"},
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "VGG-16/4, CIFAR-10": {
        "dataset": "cifar10", "model": "vgg16", "width": 0.25, "norm": "group",
        "device_optimizer": {"lr": 0.01}, "server_optimizer": {"lr": 0.03},
    },
    "ViT (micro), CIFAR-100": {
        "dataset": "cifar100", "model": "vit-micro",
        "device_optimizer": {"name": "adamw", "lr": 1e-4}, "server_optimizer": {"name": "adamw", "lr": 3e-4},
    },
}  # fmt: skip
BUCKETS = (1 << 12, 1 << 14, 1 << 16)


class Beside(Gapsl):
    """GAPSL that notes what it would have done by sketches of some sizes."""

    off: dict[int, list[Tensor]]
    kept: dict[int, list[float]]
    leaders: dict[int, list[float]]

    def combine(self, round: int, contributions: Sequence[Contribution], gradients: Tensor) -> Outcome:
        """Compare, and go on as if nothing had been."""
        exact = torch.cos(pairwise_angles(gradients))
        spreads = vars(self).setdefault("spreads", {})
        found = {}
        for buckets in BUCKETS:
            stream = torch_stream(self.run.seed, "sketch")
            sketch = CountSketch(gradients.shape[1], stream, gradients, buckets)
            rows = torch.stack([sketch(row) for row in gradients])
            ranges = {"k_min": self.chosen.k_min, "k_max": self.chosen.k_max}
            total = self.run.total_rounds
            leader = identify_leader(
                rows, round=round, total_rounds=total, spread=spreads.get(buckets), **ranges
            )
            spreads[buckets] = leader.spread
            found[buckets] = leader.members, align(rows, leader.gradient, eta=self.chosen.eta).kept
            pairs = torch.ones_like(exact).triu(diagonal=1).bool()
            self.off[buckets].append((torch.cos(leader.angles) - exact)[pairs].abs())
        outcome = super().combine(round, contributions, gradients)
        assert outcome.selection is not None
        ids = [c.device for c in contributions]
        for buckets, (leaders, kept) in found.items():
            self.kept[buckets].append(jaccard({ids[i] for i in kept}, outcome.selection.kept))
            self.leaders[buckets].append(jaccard({ids[i] for i in leaders}, outcome.selection.leader))
        return outcome


def jaccard(one: Collection[int], other: Collection[int]) -> float:
    """Return what share of two sets is common to them."""
    return len(set(one) & set(other)) / len(set(one) | set(other))


def main() -> None:
    """Train, compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", required=True, help="where CIFAR is, or goes")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--devices", type=int, nargs="+", default=[10, 40])
    chosen = parser.parse_args()
    gapsl.register_method("gapsl-beside-sketches", Beside)
    print("| run | devices | buckets | cosines off, 99 % | leaders, Jaccard | kept, Jaccard | least |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, words in RUNS.items():
        for devices in chosen.devices:
            Beside.off = {buckets: [] for buckets in BUCKETS}
            Beside.kept = {buckets: [] for buckets in BUCKETS}
            Beside.leaders = {buckets: [] for buckets in BUCKETS}
            gapsl.train(
                **COMMON, **words, method="gapsl-beside-sketches", devices=devices, rounds=chosen.rounds,
                data_dir=chosen.data_dir, seed=0,
            )  # fmt: skip
            for buckets in BUCKETS:
                off = float(torch.cat(Beside.off[buckets]).quantile(0.99))
                leaders, kept = Beside.leaders[buckets], Beside.kept[buckets]
                print(
                    f"| {name} | {devices} | {buckets} | {off:.4f} | {statistics.mean(leaders):.3f} | "
                    f"{statistics.mean(kept):.3f} | {min(kept):.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
