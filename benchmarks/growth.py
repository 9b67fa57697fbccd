"""How the cost of a round grows with devices, parameters and batch, with the fitted exponent.

Each method's round is timed in CPU seconds of one thread, the fastest of three, while one thing grows and
the others stay; the exponent is the slope of the line through the logarithms.

    python benchmarks/growth.py           # a table, and growth.png beside this file
    python benchmarks/growth.py --quick   # smaller, to see that it works
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scale import next_round, training

from gapsl.analysis.looks import LOOKS
from gapsl.run.environment import describe_environment

METHODS = ("psl", "gapsl", "papsl")
FIXED: dict[str, Any] = {"devices": 10, "batch": 16, "width": 0.125}
GROWS: dict[str, tuple[str, tuple[float, ...]]] = {
    "devices": ("devices", (5, 10, 20, 40, 80, 160)),
    "parameters": ("width", (0.0625, 0.125, 0.25, 0.5)),
    "batch": ("batch", (8, 16, 32, 64, 128)),
}


def point(method: str, words: dict[str, Any]) -> tuple[float, int]:
    """Return the CPU seconds of a round, and how many parameters both parts of the model have."""
    run = training(int(words["devices"]), int(words["batch"]), words["width"], method=method)
    device = run.fleet._devices[0].part.model  # type: ignore[attr-defined]
    size = sum(p.numel() for part in (device, run.strategy.server_model()) for p in part.parameters())
    once, spent = next_round(run), []
    for _ in range(4):
        begun = time.process_time()
        once()
        spent.append(time.process_time() - begun)
    return min(spent[1:]), size  # the first one warms up


def exponent(x: list[float], y: list[float]) -> float:
    """Return the slope of the line through the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def draw(found: dict[str, dict[str, tuple[list[float], list[float]]]], machine: str, path: Path) -> None:
    """Draw a panel for each thing that grows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, lines) in zip(figure.subplots(1, len(found), sharey=True), found.items(), strict=True):
        for method, (x, y) in lines.items():
            label = f"{LOOKS[method].name}: {exponent(x, y):.2f}"
            axes.loglog(x, y, "o-", markersize=4, color=LOOKS[method].colour, label=label)
        axes.set_xlabel(name)
        axes.set_xticks(x, [f"{at:,.0f}" for at in x])
        axes.minorticks_off()
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.legend(title="exponent", frameon=False, loc="upper left")
    low, high = figure.axes[0].get_ylim()
    figure.axes[0].set_ylim(low, high * 4)  # room for the legends
    figure.axes[0].yaxis.set_major_formatter("{x:g}")
    figure.axes[0].set_ylabel("CPU seconds per round")
    figure.suptitle(f"VGG-16, 10 devices, batch 16, 1/8 width, unless it grows; {machine}", fontsize=9)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the three smallest of each")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("growth.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = describe_environment()
    named = f"{machine['processor']}, torch {machine['torch']}, commit {str(machine['commit'])[:7]}"
    print(f"{named}\n\n| grows | method | CPU seconds per round | exponent |\n| --- | --- | --- | --- |")
    found: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for name, (setting, values) in GROWS.items():
        for method in METHODS:
            x, y = [], []
            for value in values[: 3 if options.quick else None]:
                took, size = point(method, {**FIXED, setting: value})
                x.append(float(size if name == "parameters" else value))
                y.append(took)
            found.setdefault(name, {})[method] = x, y
            listed = ", ".join(f"{took:.2f} ({at:,.0f})" for at, took in zip(x, y, strict=True))
            print(f"| {name} | {method} | {listed} | {exponent(x, y):.2f} |", flush=True)
    draw(found, named, options.out)


if __name__ == "__main__":
    main()
