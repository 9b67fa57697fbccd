"""Results side by side: a table for people, a data frame for programs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gapsl.common.errors import InputError
from gapsl.run.records import RoundRecord, RunResult

if TYPE_CHECKING:
    import pandas

ACCURACIES = ("device_mean", "device_std", "device_min", "device_max", "ensemble", "merged", "local")
OVER_DEVICES = ("device_std", "device_min", "device_max")
HEADINGS = {"device_mean": "mean", "device_std": "std", "device_min": "min", "device_max": "max"}


def results_table(results: Sequence[RunResult]) -> Table:
    """Return a table with a row a method, in the order given; several seeds become mean ± spread."""
    methods: dict[str, list[RunResult]] = {}
    for result in results:
        methods.setdefault(result.called, []).append(result)
    table = Table(title=title(results), title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    table.add_column("method", style="bold", no_wrap=True)
    for name in ACCURACIES:
        table.add_column(HEADINGS.get(name, name), justify="right", no_wrap=True)
    for name in ("MB up", "MB down", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for method, runs in methods.items():
        finals = [run.final for run in runs]
        cells = [
            spread([getattr(final, name) for final in finals], whole=name not in OVER_DEVICES)
            for name in ACCURACIES
        ]
        up = statistics.mean(sum(final.bytes_sent.values()) for final in finals) / 1e6
        down = statistics.mean(sum(final.bytes_received.values()) for final in finals) / 1e6
        seconds = statistics.mean(final.seconds for final in finals)
        table.add_row(method, *cells, f"{up:.1f}", f"{down:.1f}", f"{seconds:.0f}")
    return table


def title(results: Sequence[RunResult]) -> str:
    """Say what the results have in common."""
    config = defaultdict(lambda: "?", {**results[0].config, **results[0].config.get("custom", {})})
    seeds = sorted({result.seed for result in results})
    return (
        f"{config['dataset']}, {config['model']}, {config['devices']} devices, {config['partition']}, "
        f"{results[0].rounds} rounds, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    )


def spread(values: Sequence[float | None], *, whole: bool = True) -> str:
    """Return one accuracy in percent, or the mean of several, ± their sample standard deviation."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return "-"
    if len(known) == 1 or not whole:  # a table of 80 columns has no room for the spread of a spread
        return f"{statistics.mean(known):.1f}"
    return f"{statistics.mean(known):.1f}±{statistics.stdev(known):.1f}"


LEGEND = (
    "Accuracy in % on {where}. mean, std, min, max: over the devices, each\n"
    "with its own half; ensemble: of their mean prediction; merged: of their\n"
    "averaged halves; local: on each device's own label mix. MB: all devices\n"
    "together. s: seconds of training."
)


def legend(results: Sequence[RunResult]) -> str:
    """Return what the columns mean."""
    described = all(str(result.config.get("dataset")).startswith("described:") for result in results)
    return LEGEND.format(where="each device's own test samples" if described else "the test set")


def to_pandas(results: Sequence[RunResult]) -> pandas.DataFrame:
    """Return a row a run: what it is called, its seed, its final accuracies, bytes and seconds."""
    try:
        import pandas
    except ImportError:
        raise InputError("a data frame needs pandas; pip install pandas") from None
    return pandas.DataFrame([run_row(result) for result in results])


def run_row(result: RunResult) -> dict[str, Any]:
    """Return a run's final numbers by name."""
    final = result.final
    return {
        "method": result.called,
        "seed": result.seed,
        "rounds": result.rounds,
        **{name: getattr(final, name) for name in ACCURACIES},
        "bytes_sent": sum(final.bytes_sent.values()),
        "bytes_received": sum(final.bytes_received.values()),
        "seconds": final.seconds,
        "converged_epoch": final.converged_epoch,
    }


def participation(records: Sequence[RoundRecord]) -> list[str]:
    """Return how often each device led and was kept, a line each, where the method chooses."""
    chosen = [record.selection for record in records if record.selection is not None]
    lines: list[str] = []
    for name in ("leader", "kept") if chosen else ():
        devices = [getattr(one, name) for one in chosen]
        shares = [sum(device in one for one in devices) / len(chosen) for device in records[0].bytes_sent]
        lines.append(f"{name + ' %':<9}by device: {' '.join(f'{100 * share:3.0f}' for share in shares)}")
    return lines
