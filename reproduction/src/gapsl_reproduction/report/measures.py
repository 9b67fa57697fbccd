"""Numbers of one run: accuracies in percent, angles in degrees, traffic in megabytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import degrees
from statistics import fmean
from typing import Any

from gapsl.device.faults import make_faults
from gapsl_reproduction.report.evidence import Runs
from gapsl_reproduction.report.spread import Values
from gapsl_reproduction.store import Result

Measure = Callable[[Result], float | None]


def by_seed(runs: Runs, measure: Measure) -> Values:
    """Return a number of each run, without those that have none."""
    found = {seed: measure(result) for seed, result in runs.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def accuracy(result: Result) -> float:
    """Return the mean over the devices of their accuracies on the test set."""
    return 100 * float(result["final"]["device_mean"])


def validation_accuracy(result: Result) -> float | None:
    """Return the same on the validation split, None where there is none: what choices are made by."""
    held_out = result["final"].get("validation")
    return None if held_out is None else 100 * float(held_out["device_mean"])


def ensemble(result: Result) -> float:
    """Return the accuracy of the devices' mean prediction."""
    return 100 * float(result["final"]["ensemble"])


def converged(result: Result) -> float | None:
    """Return the epoch in which the run had converged."""
    epoch = result["final"]["converged_epoch"]
    return None if epoch is None else float(epoch)


def converged_rounds(result: Result) -> float | None:
    """Return the round in which the run had converged."""
    epoch = converged(result)
    return None if epoch is None else epoch * float(result["rounds_per_epoch"])


def megabytes(result: Result) -> float:
    """Return what all devices sent and received."""
    return float(result["final"]["bytes_sent"] + result["final"]["bytes_received"]) / 1e6


def seconds(result: Result) -> float:
    """Return how long training took."""
    return float(result["final"]["seconds"])


def device_accuracies(result: Result) -> list[float]:
    """Return each device's accuracy on the test set."""
    return [100 * accuracy for accuracy in result["final"]["device_accuracy"]]


def weighted_windows(result: Result) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what was recorded between evaluations, with the number of rounds each stands for."""
    before = 0
    for window in result["windows"]:
        yield window["round"] - before, window
        before = window["round"]


def over_rounds(result: Result, name: str) -> float | None:
    """Return the mean of a recorded number over all rounds, None where the method has no such number."""
    known = [(rounds, window[name]) for rounds, window in weighted_windows(result) if name in window]
    return _weighted(known)


def over_devices(result: Result, name: str) -> list[float | None]:
    """Return the mean of a recorded list over all rounds, a number a device; empty where there is none."""
    known = [(rounds, window[name]) for rounds, window in weighted_windows(result) if name in window]
    devices = len(known[0][1]) if known else 0
    return [
        _weighted([(rounds, values[device]) for rounds, values in known if values[device] is not None])
        for device in range(devices)
    ]


def angle(result: Result) -> float | None:
    """Return the mean angle between two devices' gradients."""
    found = over_rounds(result, "angle_mean")
    return None if found is None else degrees(found)


def dispersion(result: Result) -> float | None:
    """Return the mean dispersion of the consistency scores (their standard deviation)."""
    found = over_rounds(result, "dispersion")
    return None if found is None else degrees(found)


def faulty_devices(result: Result) -> tuple[int, ...]:
    """Return the devices that misbehave on purpose."""
    spec = result["config"].get("faults", "none")
    faults = make_faults(spec, devices=len(result["label_counts"]), seed=result["seed"])
    return () if faults is None else faults.devices


def told_apart(result: Result, name: str) -> float | None:
    """Return how well a recorded list tells faulty devices from honest ones: 100 always, 50 not at all.

    It is the share of all pairs of a faulty and an honest device in which the faulty one has the larger
    number; a tie counts half.
    """
    faulty = faulty_devices(result)
    numbers = [(device, own) for device, own in enumerate(over_devices(result, name)) if own is not None]
    bad = [own for device, own in numbers if device in faulty]
    good = [own for device, own in numbers if device not in faulty]
    pairs = [(own > other) + (own == other) / 2 for own in bad for other in good]
    return 100 * fmean(pairs) if pairs else None


def accuracy_without(result: Result, left_out: Collection[int]) -> float | None:
    """Return the mean accuracy of all devices but some."""
    kept = [own for device, own in enumerate(device_accuracies(result)) if device not in left_out]
    return fmean(kept) if kept else None


def honest_accuracy(result: Result) -> float | None:
    """Return the mean accuracy of the devices that do not misbehave."""
    return accuracy_without(result, faulty_devices(result))


def course(result: Result) -> list[tuple[float, float]]:
    """Return the accuracy at each evaluation, by epoch."""
    return [(entry["epoch"], 100 * entry["device_mean"]) for entry in result["history"]]


def course_of(result: Result, name: str, scale: float = 1.0) -> list[tuple[float, float]]:
    """Return a recorded number over the epochs."""
    epochs = result["rounds_per_epoch"]
    return [(w["round"] / epochs, scale * w[name]) for w in result["windows"] if name in w]


def split(runs: Sequence[Result]) -> str:
    """Return which data accuracies during training are measured on."""
    found = {entry["split"] for result in runs for entry in result["history"]}
    return found.pop() if len(found) == 1 else "test"


def _weighted(known: Sequence[tuple[int, float]]) -> float | None:
    total = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / total if total else None
