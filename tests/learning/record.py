"""Record the trajectories that the tests of learning compare with, in references.json.

    OMP_NUM_THREADS=1 python tests/learning/record.py            # record them again
    OMP_NUM_THREADS=1 python tests/learning/record.py --noise    # measure what rounding alone moves

Record again only after a change that is meant to alter what is computed, and say in that commit which
statistic moved and why. The file carries the commit, the versions and the settings it came from.

Two kinds of run, all on digits with 10 devices at dirichlet:0.1:

- `float64/...`: a smooth perceptron in float64, so that two machines differ by far less than a mistake
  does. What is left is single precision where the run starts (initial weights, normalised pixels: 1e-7
  relative at most) and who is chosen at a threshold; so recording refuses a run in which a choice was
  closer than MARGIN, and the bands are at least 50 times what a change of the initial weights by 1e-7
  relative moves (`--noise` prints it, in bands).
- `default/...`: nothing set but the rounds, so float32 and the CNN; only how it ends, in a wide band.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gapsl
from gapsl.common.streams import global_stream
from gapsl.run import build as simulation
from gapsl.run.environment import describe_environment
from gapsl.run.observers import Observer
from gapsl.run.records import FinalEvaluation, RoundRecord

SHIPPED = [
    name
    for name, method in gapsl.METHODS.items()
    if method.__module__.startswith("gapsl.") and not method.defaults  # else PSL with settings, as below
]
REFERENCES = Path(__file__).with_name("references.json")

# How far a statistic may be from its reference: relative to the largest of its numbers, or absolute.
RELATIVE = {
    "loss": 1e-5,  # training loss, mean over devices, at the rounds SHOWN
    "device_loss": 1e-5,  # training loss of each device, mean over rounds
    "test_loss": 1e-5,
    "angle_mean": 1e-5,  # pairwise angles where they are measured, mean over pairs and rounds
    "dispersion": 1e-5,  # of the scores, mean over rounds; so are the next three
    "ratio": 1e-5,
    "threshold": 1e-5,
    "cos": 1e-5,  # to the leader, each device
}
ABSOLUTE = {
    "kept": 0,  # rounds in which each device was kept
    "led": 0,  # rounds in which each device was a member of the leader
    "device_mean": 0.002,  # a few of the 3600 predictions may be on the brink
    "ensemble": 0.006,  # 2 of the 360 test samples
    "merged": 0.006,
    "local": 0.006,
}
DEFAULT = {"device_mean": 0.02, "ensemble": 0.03, "merged": 0.03, "local": 0.03, "test_loss": 0.01}

MARGIN = 1e-5  # radians, or share of a device: the closest that a choice may be in a recorded run
ROUNDS = 30
SHOWN = (1, 2, 3, 5, 10, 15, 20, 25, 30)

COMMON: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp",
    "devices": 10,
    "partition": "dirichlet:0.1",
    "batch_size": 16,
    "rounds": ROUNDS,
    "evaluate_every": 15,
    "precision": "float64",
    "server_optimizer": {"lr": 0.05},
    "device_optimizer": {"lr": 0.05},
    "seed": 0,
}
# Ten steps a round: at the rates of the others they double any difference every few steps.
SEQUENTIAL = {"server_optimizer": {"lr": 0.01}, "device_optimizer": {"lr": 0.01}}
# Nobody is excluded and the weight is large, so that the derivative of the regulariser matters.
EXACT = {"method": "gapsl", "gapsl": {"lambda": 0.05, "exclusion": "none", "penalty": "exact"}}
FINITE = {"method": "gapsl", "gapsl": {"lambda": 0.05, "exclusion": "none", "penalty": "finite"}}
TOGETHER = {
    "probes": 4,
    "calibration": "prior",
    "calibration_for": "devices",
    "balance": "classes",
    "device_gradient": "own",
    "device_optimizer": {"lr": 0.01},
}
MEETING = {**TOGETHER, "probes": 2, "probe_steps": 4, "probe_leaders": 0.5}
DROPOUT = {"model": "perceptron-with-dropout", "cut": 3}

CASES: dict[str, dict[str, Any]] = {
    **{f"float64/{method}": {**COMMON, "method": method} for method in SHIPPED},
    **{f"float64/{m}": {**COMMON, **SEQUENTIAL, "method": m} for m in ("sfl-v2", "vanilla", "central")},
    "float64/psl sum": {**COMMON, "method": "psl", "reduction": "sum", "server_optimizer": {"lr": 0.01}},
    "float64/psl samples": {**COMMON, "method": "psl", "reduction": "samples"},
    "float64/gapsl samples": {**COMMON, "method": "gapsl", "reduction": "samples"},
    "float64/epsl per-device": {**COMMON, "method": "epsl", "epsl": {"hidden": "per-device"}},
    "float64/gapsl plain": {**COMMON, "method": "gapsl", "gapsl": {"excluded": "plain"}},
    "float64/gapsl exact": {**COMMON, **EXACT},
    "float64/gapsl finite": {**COMMON, **FINITE},
    "float64/gapsl exact dropout": {**COMMON, **EXACT, **DROPOUT},
    "float64/gapsl finite dropout": {**COMMON, **FINITE, **DROPOUT},
    "float64/psl prior": {**COMMON, "method": "psl", "calibration": "prior"},
    "float64/psl together": {**COMMON, **TOGETHER, "method": "psl"},
    "float64/psl meeting": {**COMMON, **MEETING, "method": "psl"},
    **{f"default/{m}": {"method": m, "rounds": 60, "evaluate_every": 60} for m in ("gapsl", "psl", "sfl")},
}


class PortableDropout(nn.Dropout):
    """Dropout from uniform numbers: the masks of torch's own differ between processor families."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        return input * (torch.rand(input.shape) >= self.p) / (1 - self.p)


def perceptron_with_dropout() -> nn.Module:
    with global_stream(0, "learning-test"):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.GELU(),
            nn.Linear(32, 32), nn.GELU(), PortableDropout(0.5), nn.Linear(32, 10),
        )  # fmt: skip


class Trajectory(Observer):
    """The records of all rounds."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []

    def round(self, record: RoundRecord) -> None:
        self.records.append(record)


def run(settings: Mapping[str, Any]) -> tuple[FinalEvaluation, list[RoundRecord]]:
    """Train with these settings; returns the final measures and the records of all rounds."""
    words = dict(settings)
    model = words.pop("model", None)
    trajectory = Trajectory()
    given = perceptron_with_dropout() if model == "perceptron-with-dropout" else model
    # In a thread: torch.manual_seed prints the stack into a string each time, and pytest's stack is deep.
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(gapsl.train, model=given, observers=[trajectory], **words).result()
    assert result is not None
    return result.final, trajectory.records


def summarise(final: FinalEvaluation, records: list[RoundRecord]) -> dict[str, list[float]]:
    """Return the statistics of a run that its reference holds, each a list of numbers."""
    found = {
        name: [getattr(final, name)] for name in ("device_mean", "ensemble", "merged", "local", "test_loss")
    }
    found["loss"] = [records[t - 1].loss for t in SHOWN if t <= len(records)]
    devices = range(len(final.bytes_sent))
    by_device = [[r.losses[d] for r in records if d in r.losses] for d in devices]
    found["device_loss"] = [mean(losses) for losses in by_device if losses]
    angles = [r.angle_mean for r in records if r.angle_mean is not None]
    if angles:
        found["angle_mean"] = [mean(angles)]
    if records[0].selection is not None:
        for name in ("dispersion", "ratio", "threshold"):
            found[name] = [mean([getattr(r.selection, name) for r in records])]
        led = [r.selection.lead_angles for r in records]  # without a device that was an outlier: far off
        found["cos"] = [mean([math.cos(a[d]) if d in a else math.inf for a in led]) for d in devices]
        found["kept"] = [sum(d in r.selection.kept for r in records) for d in devices]
        found["led"] = [sum(d in r.selection.leader for r in records) for d in devices]
    return found


def mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def deviations(
    name: str, found: Mapping[str, list[float]], reference: Mapping[str, list[float]]
) -> dict[str, float]:
    """Return how far each statistic is from its reference, in bands: above 1 it has left its band."""
    if name.startswith("default/"):
        reference = {statistic: reference[statistic] for statistic in DEFAULT}
    far = {}
    for statistic, numbers in reference.items():
        ours = found.get(statistic, [])
        if len(ours) != len(numbers) or not all(map(math.isfinite, ours)):
            far[statistic] = math.inf
            continue
        furthest = max(abs(a - b) for a, b in zip(ours, numbers, strict=True))
        if name.startswith("default/"):
            band = DEFAULT[statistic]
        elif statistic in ABSOLUTE:
            band = ABSOLUTE[statistic]
        else:
            band = RELATIVE[statistic] * max(map(abs, numbers))
        far[statistic] = furthest / band if band else math.inf if furthest else 0.0
    return far


def references() -> dict[str, dict[str, list[float]]]:
    stored = json.loads(REFERENCES.read_text(encoding="utf-8"))
    return {name: entry["reference"] for name, entry in stored["runs"].items()}


def closest_choice(records: list[RoundRecord]) -> float:
    """Return how near GAPSL came to choosing other devices: by angle, by score or by their number."""
    nearest = math.inf
    for r in records:
        if r.selection is None:
            return math.inf
        if len(r.selection.kept) < len(r.selection.lead_angles):
            angles = r.selection.lead_angles.values()
            nearest = min(nearest, *(abs(angle - r.selection.threshold) for angle in angles))
        scores = sorted(r.selection.scores.values())
        count = len(r.selection.leader)
        if count < len(scores):
            nearest = min(nearest, scores[count] - scores[count - 1])
        share = r.selection.ratio * len(scores)
        if abs(share - round(share)) > 1e-9:  # at K_min, in all the rounds that start a range, it is exact
            nearest = min(nearest, abs(share - round(share)))
    return nearest


@contextmanager
def disturbed(size: float, seed: int) -> Iterator[None]:
    """Change every initial weight by about `size` of itself."""
    original = simulation.take_model

    def take_model(*arguments: Any) -> Any:
        parts = original(*arguments)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for part in (parts.device.double(), parts.server.double()):
                for parameter in part.parameters():
                    parameter.mul_(1 + size * torch.randn(parameter.shape, generator=generator))
        return parts

    simulation.take_model = take_model
    try:
        yield
    finally:
        simulation.take_model = original


def noise() -> None:
    """Print, in bands, how far each statistic moves when only rounding is different."""
    for name, reference in references().items():
        settings = CASES[name]
        moved: dict[str, dict[str, float]] = {}
        sizes = [1e-7, 1e-6, 1e-5] if name.startswith("float64/") else [1e-6, 1e-4]
        for size in sizes:
            for seed in (1, 2):
                with disturbed(size, seed):
                    far = deviations(name, summarise(*run(settings)), reference)
                column = moved.setdefault(f"{size:g}", {})
                column.update({s: max(far[s], column.get(s, 0)) for s in far})
        other = "float32" if settings.get("precision") == "float64" else "float64"
        moved[other] = deviations(name, summarise(*run({**settings, "precision": other})), reference)
        for kind, column in moved.items():
            text = " ".join(f"{s}={v:.2g}" for s, v in column.items() if v)
            print(f"{name:32} {kind:8} max {max(column.values()):.2g}: {text}", flush=True)


def record() -> None:
    runs = {}
    for name, settings in CASES.items():
        final, records = run(settings)
        margin = closest_choice(records)
        print(f"{name:32} device_mean {final['device_mean']:.3f}  closest choice {margin:.1g}", flush=True)
        if margin < MARGIN:
            sys.exit(
                f"{name}: a choice was decided by {margin:.1g}, which rounding may turn; change its settings"
            )
        runs[name] = {"settings": settings, "reference": summarise(final, records)}
    environment = describe_environment()
    wanted = ("gapsl", "commit", "python", "torch", "numpy", "processor", "started")
    made_with = {k: environment[k] for k in wanted}
    git = ["git", "-C", str(REFERENCES.parent)]
    if subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/src"]).returncode == 0:
        made_with["commit"] = made_with["commit"].removesuffix("+changes")  # they are not in what is tested
    REFERENCES.write_text(
        json.dumps({"made_with": made_with, "runs": runs}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    noise() if "--noise" in sys.argv[1:] else record()
