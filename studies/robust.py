"""Three faulty devices of ten and the robust server steps, on digits: `python -m studies.robust`.

A finished run is a line of `robust.jsonl` at once and is not repeated; `--page` writes the tables into
docs/robust.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import gapsl
from gapsl.device.faults import make_faults

STORED = Path(__file__).with_name("robust.jsonl")
PAGE = Path(__file__).parents[1] / "docs" / "robust.md"

METHODS = ("psl", "papsl")
FAULTS = ("none", "flip:3", "labels:3", "permute:3", "noise:3", "scale:3")
ROBUST = ("none", "clip", "median", "trimmed")
SEEDS = (0, 1)
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
    """Train a run; returns the honest devices' mean accuracy, none if it stopped, and who was skipped."""
    faults = make_faults(fault, devices=COMMON["devices"], seed=seed)
    watch = Skipped()
    watch.bad = frozenset(faults.devices if faults is not None else ())
    settings = {**COMMON, **OF_METHOD[method], "method": method, "faults": fault, "robust": robust}
    accuracy: float | None = None
    try:
        result = gapsl.train(seed=seed, observers=[watch], **settings)
        assert result is not None
        found = result.final.device_accuracy
        accuracy = mean(value for device, value in found.items() if device not in watch.bad)
    except gapsl.TrainingStopped:
        pass
    return {"accuracy": accuracy, "skipped_faulty": watch.faulty, "skipped_honest": watch.honest}


def stored() -> dict[Key, dict[str, Any]]:
    """Return what is stored, by run."""
    lines = STORED.read_text(encoding="utf-8").splitlines() if STORED.exists() else []
    entries = map(json.loads, lines)
    return {(e["method"], e["fault"], e["robust"], e["seed"]): e for e in entries}


def table(found: Mapping[Key, Mapping[str, Any]], method: str) -> Iterator[str]:
    """Yield the lines of a method's table: honest devices' accuracy, a row per fault, the best in bold."""
    yield f"| {method} | {' | '.join(ROBUST)} | best, of the clean accuracy |"
    yield "| --- " * (len(ROBUST) + 2) + "|"
    clean = average(found, method, "none", "none")
    for fault in FAULTS:
        values = [average(found, method, fault, robust) for robust in ROBUST]
        best = max(values)
        cells = [f"**{100 * value:.1f}**" if value == best else f"{100 * value:.1f}" for value in values]
        yield f"| `{fault}` | {' | '.join(cells)} | {100 * best / clean:.0f} % |"


def average(found: Mapping[Key, Mapping[str, Any]], method: str, fault: str, robust: str) -> float:
    """Return the mean over seeds; a run that stopped counts as 0."""
    return mean(found[method, fault, robust, seed]["accuracy"] or 0.0 for seed in SEEDS)


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
    for seed, fault, method, robust in itertools.product(SEEDS, FAULTS, METHODS, ROBUST):
        if (method, fault, robust, seed) not in done:
            entry = {"method": method, "fault": fault, "robust": robust, "seed": seed}
            entry |= trained(method, fault, robust, seed)
            with STORED.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
