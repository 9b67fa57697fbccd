"""Three faulty devices of ten and the robust server steps, on digits: `python -m studies.robust`.

A finished run is a line of `robust.jsonl` at once and is not repeated; `--page` writes the tables into
docs/robust.md. What counts are the honest devices: each seed's faulty ones are left out of the clean run too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import gapsl
from gapsl.analysis.statistics import t_quantile
from gapsl.device.faults import make_faults

STORED = Path(__file__).with_name("robust.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "robust.md"

METHODS = ("psl", "papsl")
FAULTS = ("none", "flip:3", "labels:3", "permute:3", "noise:3", "scale:3")
SEEDS = {"none": range(20), "clip": range(20), "median": range(2), "trimmed": range(2)}  # by robust step
ADVISED = "clip"
COMMON: dict[str, Any] = {
    "dataset": "digits", "model": "mlp", "devices": 10, "partition": "dirichlet:0.5", "batch_size": 16,
    "rounds": 100, "evaluate_every": 100, "angles": "off", "server_optimizer": {"lr": 0.1},
}  # fmt: skip
OF_METHOD: Mapping[str, dict[str, Any]] = {"psl": {"device_optimizer": {"lr": 0.1}}, "papsl": {}}

Key = tuple[str, str, str, int]  # method, fault, robust, seed


class Skipped(gapsl.Observer):
    """Counts how often a device was left out as an outlier."""

    def __init__(self) -> None:
        self.honest = self.faulty = 0
        self.bad: frozenset[int] = frozenset()

    def round(self, record: gapsl.RoundRecord) -> None:
        """Count a round."""
        self.faulty += len(self.bad.intersection(record.skipped))
        self.honest += len(set(record.skipped) - self.bad)


def trained(method: str, fault: str, robust: str, seed: int) -> dict[str, Any]:
    """Train a run; returns each device's accuracy, none if it stopped, and who was faulty or skipped."""
    faults = make_faults(fault, devices=COMMON["devices"], seed=seed)
    watch = Skipped()
    watch.bad = frozenset(faults.devices if faults is not None else ())
    settings = {**COMMON, **OF_METHOD[method], "method": method, "faults": fault, "robust": robust}
    accuracy: list[float] | None = None
    try:
        result = gapsl.train(seed=seed, observers=[watch], **settings)
        assert result is not None
        accuracy = [round(result.final.device_accuracy[device], 6) for device in range(COMMON["devices"])]
    except gapsl.TrainingStopped:
        pass
    skipped = {"skipped_faulty": watch.faulty, "skipped_honest": watch.honest}
    return {"accuracy": accuracy, "faulty": sorted(watch.bad), **skipped}


def stored() -> dict[Key, dict[str, Any]]:
    """Return what is stored, by run."""
    lines = STORED.read_text(encoding="utf-8").splitlines() if STORED.exists() else []
    entries = map(json.loads, lines)
    return {(e["method"], e["fault"], e["robust"], e["seed"]): e for e in entries}


def table(found: Mapping[Key, Mapping[str, Any]], method: str) -> Iterator[str]:
    """Yield the lines of a method's table: honest devices' accuracy, a row per fault, and what is kept."""
    seeds = {robust: complete(found, method, robust) for robust in SEEDS}
    heads = [f"{robust} ({len(own)} seeds)" for robust, own in seeds.items()]
    yield f"| {method} | {' | '.join(heads)} | `{ADVISED}` keeps |"
    yield "| --- " * (len(SEEDS) + 2) + "|"
    for fault in FAULTS:
        means = {
            robust: [honest(found[method, fault, robust, seed]) for seed in own]
            for robust, own in seeds.items()
        }
        runs = [found[method, fault, ADVISED, seed] for seed in seeds[ADVISED]]
        clean = [honest(found[method, "none", "none", run["seed"]], run["faulty"]) for run in runs]
        kept = [value / reference for value, reference in zip(means[ADVISED], clean, strict=True)]
        yield f"| `{fault}` | {' | '.join(map(interval, means.values()))} | {interval(kept)} % |"


def complete(found: Mapping[Key, Mapping[str, Any]], method: str, robust: str) -> list[int]:
    """Return the seeds with which a method was trained under every fault."""
    return [seed for seed in SEEDS[robust] if all((method, fault, robust, seed) in found for fault in FAULTS)]


def honest(run: Mapping[str, Any], out: Sequence[int] = ()) -> float:
    """Return the mean accuracy of a run's devices without the faulty and these; 0 if it stopped."""
    accuracy = run["accuracy"] or [0.0] * COMMON["devices"]
    if isinstance(accuracy, float):  # of the honest devices together, as it was stored at first
        return accuracy
    return float(mean(one for device, one in enumerate(accuracy) if device not in {*run["faulty"], *out}))


def interval(values: list[float]) -> str:
    """Write the mean over seeds in % and, from three on, the half-width of its 95 % interval."""
    if len(values) < 3:
        return f"{100 * mean(values):.1f}"
    width = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{100 * mean(values):.1f} ± {100 * width:.1f}"


def write_page(found: Mapping[Key, Mapping[str, Any]]) -> None:
    """Put the tables between the marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for method in METHODS:
        begin, end = f"<!-- table of {method} -->\n", "<!-- end of table -->"
        head, _, rest = text.partition(begin)
        text = head + begin + "\n".join(table(found, method)) + "\n" + end + rest.partition(end)[2]
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Train what is not stored, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the tables into docs/robust.md")
    if parser.parse_args().page:
        write_page(stored())
        return
    done = stored()
    planned = ((robust, method, seed) for robust in SEEDS for method in METHODS for seed in SEEDS[robust])
    for (robust, method, seed), fault in itertools.product(planned, FAULTS):
        if (method, fault, robust, seed) not in done:
            entry = {"method": method, "fault": fault, "robust": robust, "seed": seed}
            entry |= trained(method, fault, robust, seed)
            with STORED.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
