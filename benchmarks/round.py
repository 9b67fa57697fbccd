"""What a round costs, as a ratio to a floor measured in the same run.

The floor is the bare torch computation a PSL round consists of: every device's forward and backward on
the same batches, and nothing else. Rounds of all kinds alternate, so that a slow moment of the machine
hits them all, and the fastest of the repetitions counts: what disturbs a round only makes it slower.
Run it alone:

    python benchmarks/round.py                      # the table of README.md in this folder
    python benchmarks/round.py --batch-size 16 --repeat 25
    python benchmarks/round.py --model vit-micro --batch-size 64
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from gapsl.data import ArraySamples, Source
from gapsl.models import Split
from gapsl.run.build import prepare
from gapsl.run.config import make_config, preset
from gapsl.run.environment import describe_environment
from gapsl.run.loop import Training
from gapsl.run.observers import Observer
from gapsl.run.parts import Given
from gapsl.run.records import RoundRecord

# At most so much of what a row is held against, by batch.
LIMITS = {
    128: {
        "psl": 1.03, "recommended": 1.10,
        "gapsl none, all kept": 1.02, "gapsl finite, all kept": 1.55, "gapsl exact, all kept": 2.5,
    },
    16: {"psl": 1.15},
}  # fmt: skip


def synthetic(samples: int, classes: int) -> Source:
    """Return images of noise: what a round costs does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (samples, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(samples) % classes
    made = ArraySamples(inputs, labels)
    few = ArraySamples(inputs[:100], labels[:100])
    names = tuple(map(str, range(classes)))
    return Source("noise", made, few, names, (0.5,) * 3, (0.25,) * 3, "crop-flip")


def training(options: argparse.Namespace, **settings: Any) -> tuple[Training, Kept]:
    """Return a run that is ready for its first round."""
    config = make_config(
        {
            "model": options.model,
            "width": options.width,
            "norm": options.norm,
            "devices": options.devices,
            "partition": "dirichlet:0.1",
            "rounds": 10_000,
            "batch_size": options.batch_size,
            "evaluate_every": 100_000,
            **settings,
        }
    )
    kept = Kept(options.devices)
    return prepare(config, Given(dataset=synthetic(options.devices * 500, 10)), observers=[kept]), kept


def bare(options: argparse.Namespace) -> Callable[[], None]:
    """Return the floor: all forwards and backwards of one round's batches, nothing else."""
    run, _ = training(options, method="psl")
    devices = list(run.fleet._devices.values())  # type: ignore[attr-defined]
    server = run.strategy.server_model()
    batches = [device.batches.draw(1) for device in devices]
    models = [Split(device.part.model, server) for device in devices]

    def once() -> None:
        for model, (inputs, labels) in zip(models, batches, strict=True):
            loss = F.cross_entropy(model.server(model.device(inputs)), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            for parameter in (*model.device.parameters(), *model.server.parameters()):
                parameter.grad = None

    return once


class Kept(Observer):
    """Remembers which share of the devices the last round kept."""

    share = 1.0

    def __init__(self, devices: int) -> None:
        self.devices = devices

    def round(self, record: RoundRecord) -> None:
        """Look at the round."""
        self.share = len(record.selection.kept) / self.devices if record.selection else 1.0


def rounds(run: Training, kept: Kept) -> Callable[[], float]:
    """Return a function that trains the next round and says which share of the devices was kept."""

    def once() -> float:
        run.one_round(run.state.round + 1)
        return kept.share

    return once


# Everybody kept, too: there nobody's skipped backward hides what the further passes cost.
PENALTIES = ("none", "finite", "exact")
KINDS: dict[str, dict[str, Any]] = {
    "psl": {"method": "psl"},
    **{f"gapsl {mode}": {"method": "gapsl", "gapsl": {"penalty": mode}} for mode in PENALTIES},
    **{
        f"gapsl {mode}, all kept": {"method": "gapsl", "gapsl": {"penalty": mode, "exclusion": "none"}}
        for mode in PENALTIES
    },
    "recommended": preset("recommended"),
}


def kind(options: argparse.Namespace, name: str) -> Callable[[], Any]:
    """Return what is timed under a name."""
    if name == "bare torch":
        return bare(options)
    return rounds(*training(options, **KINDS[name]))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time all kinds of round alternately and return a row each."""
    floor, timed = bare(options), {name: kind(options, name) for name in KINDS}
    seconds: dict[str, list[float]] = {name: [] for name in ("bare", *timed)}
    kept: dict[str, list[float]] = {name: [] for name in timed}
    for repetition in range(options.repeat + 1):
        for name, once in (("bare", floor), *timed.items()):
            begun = time.perf_counter()
            share = once()
            spent = time.perf_counter() - begun
            if repetition:  # the first one warms up
                seconds[name].append(spent)
                if name in kept:
                    kept[name].append(1.0 if share is None else share)
    fastest = {name: min(spent) for name, spent in seconds.items()}
    rows: list[dict[str, Any]] = [{"name": "bare torch", "seconds": fastest["bare"], "ratio": 1.0}]
    for name in timed:
        base = "bare" if name == "psl" else "psl"
        row: dict[str, Any] = {
            "name": name,
            "seconds": fastest[name],
            "to": base,
            "ratio": fastest[name] / fastest[base],
        }
        row["kept"] = kept[name][seconds[name].index(fastest[name])]  # of that very round
        rows.append(row)
    return rows


def peak_memory(options: argparse.Namespace, name: str) -> float:
    """Return the peak resident memory in MiB of a process that trains two rounds of this kind."""
    command = [sys.executable, __file__, "--only", name, *sys.argv[1:]]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(printed)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--norm", default="none")
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only:
        once = kind(options, options.only)
        once()
        once()
        # The kernel's own high-water mark: getrusage would tell the parent's where that is larger.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        print(next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")))
        return
    machine = describe_environment()
    print(f"{machine['processor']}, torch {machine['torch']}, 1 thread, commit {machine['commit']}")
    print(
        f"{options.model} width {options.width:g} norm {options.norm}, {options.devices} devices, "
        f"batch {options.batch_size}, {options.repeat} repetitions\n"
    )
    print("| round | seconds | ratio | to | kept | goal | peak MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in measure(options):
        goal = LIMITS.get(options.batch_size, {}).get(row["name"])
        memory = "" if options.no_memory else f"{peak_memory(options, row['name']):.0f}"
        kept = f"{row['kept']:.2f}" if "kept" in row else ""
        print(
            f"| {row['name']} | {row['seconds']:.3f} | {row['ratio']:.3f} | {row.get('to', '')} | {kept} "
            f"| {'' if goal is None else f'≤ {goal}'} | {memory} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
