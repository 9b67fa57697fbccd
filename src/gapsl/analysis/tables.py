"""Results side by side: a row per group of runs, with differences to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gapsl.analysis.formats import Column, Table, counted
from gapsl.analysis.looks import printed_name
from gapsl.analysis.runs import Group, RunSummary, grouped, varying, where
from gapsl.analysis.statistics import Difference, Values, deviation, mean, paired_difference
from gapsl.common.errors import InputError
from gapsl.run.records import MEASURES, Evaluation, RoundRecord, RunResult

if TYPE_CHECKING:
    import pandas

ACCURACIES = MEASURES[:-1]  # all but the loss
OVER_DEVICES = ("device_std", "device_min", "device_max")  # no room for the spread of a spread
HEADINGS = {"device_mean": "mean", "device_std": "std", "device_min": "min", "device_max": "max"}
COSTS: dict[str, Callable[[Evaluation], float]] = {
    "bytes_sent": lambda evaluation: sum(evaluation.bytes_sent.values()),
    "bytes_received": lambda evaluation: sum(evaluation.bytes_received.values()),
    "seconds": lambda evaluation: evaluation.seconds,
}
TITLE = ("dataset", "model", "devices", "partition", "rounds", "epochs", "faults", "robust")
UNITS = ("devices", "rounds", "epochs")
NOTHING = "-"

COLUMNS = (
    "Accuracy in % on {where}. mean, std, min, max: over the devices, each with its own client-side model; "
    "ensemble: of their mean prediction; merged: of their averaged client-side models; local: on each "
    "device's own label mix. up, down: MB, all devices together; s: seconds of training."
)
SPREAD = "±: sample standard deviation over the seeds; what has no ± is the mean over them."
AGAINST = (
    "vs {name}: difference of the means in points, paired by seed, with its 95 % interval (Student's t)."
)
NEWEST = "Rows of runs that are not finished show their newest evaluation{split}."
REPEATED = "Not counted, because the same settings and seed are there already: {names}."


def results_table(runs: Iterable[RunSummary | RunResult], baseline: str | None = None) -> Table:
    """Return a row per group of runs that differ in the seed alone, in the order given.

    `baseline` names the row that the others are compared with, pair by pair of seeds: a name, or where
    several rows have it, "name,setting=value". Without one it is the first row, if two seeds can be paired.
    """
    groups = grouped(RunSummary.of(run) if isinstance(run, RunResult) else run for run in runs)
    names = varying(groups)
    against = chosen_baseline(groups, baseline)
    differences = [difference(group, against) for group in groups]
    columns = [*key_columns(groups, names), *accuracy_columns(groups), *cost_columns(groups)]
    if against is not None:
        cells = [
            NOTHING if group is against else in_points(d)
            for group, d in zip(groups, differences, strict=True)
        ]
        columns.append(Column(f"vs {printed_name(against.name)}", tuple(cells)))
    return Table(
        title(groups, names),
        tuple(columns),
        tuple(notes(groups, against)),
        tuple(number_row(group, names, d) for group, d in zip(groups, differences, strict=True)),
    )


def key_columns(groups: Sequence[Group], names: Sequence[str]) -> list[Column]:
    """Return what tells the groups apart: names, settings, and where they differ seeds and progress."""
    found = {"method": [printed_name(group.name) for group in groups]}
    for name in names:
        found[short(name)] = [value_text(group.settings.get(name)) for group in groups]
    if len({group.seeds for group in groups}) > 1:
        found["seeds" if any(len(group.seeds) > 1 for group in groups) else "seed"] = [
            seeds_text(group.seeds) for group in groups
        ]
    if not all(group.finished for group in groups):
        found["state"] = [group.runs[0].state for group in groups]
    return [Column(heading, tuple(cells), key=True) for heading, cells in found.items()]


def accuracy_columns(groups: Sequence[Group]) -> list[Column]:
    """Return the accuracies in percent."""
    return [
        Column(
            HEADINGS.get(name, name),
            tuple(
                percent(group.values(attrgetter(name)), spread=name not in OVER_DEVICES) for group in groups
            ),
        )
        for name in ACCURACIES
    ]


def cost_columns(groups: Sequence[Group]) -> list[Column]:
    """Return traffic and time, the mean over seeds."""
    found = []
    for name, heading, unit, digits in (
        ("bytes_sent", "up", 1e6, 1),
        ("bytes_received", "down", 1e6, 1),
        ("seconds", "s", 1, 0),
    ):
        means = [mean(group.values(COSTS[name])) for group in groups]
        cells = (NOTHING if value is None else f"{value / unit:.{digits}f}" for value in means)
        found.append(Column(heading, tuple(cells)))
    return found


def title(groups: Sequence[Group], names: Sequence[str]) -> str:
    """Say what the groups have in common."""
    shared = {name: groups[0].settings.get(name) for name in TITLE if name not in names}
    rounds = {run.total for group in groups for run in group.runs}
    if {"rounds", "epochs"} <= shared.keys() and len(rounds) == 1:
        shared |= {"rounds": rounds.pop(), "epochs": None}
    known = {name: value for name, value in shared.items() if value not in (None, "none")}
    words = {name: counted(known[name], name[:-1]) for name in UNITS if name in known}
    words |= {name: f"{name} {known[name]}" for name in ("faults", "robust") if name in known}
    parts = [words.get(name, str(value)) for name, value in known.items()]
    if len({group.seeds for group in groups}) == 1:
        seeds = groups[0].seeds
        parts.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
    return ", ".join(parts)


def notes(groups: Sequence[Group], against: Group | None) -> list[str]:
    """Return what the columns mean, and what of the runs is not in them."""
    own = all(str(group.settings.get("dataset")).startswith("described:") for group in groups)
    found = [COLUMNS.format(where="each device's own test samples" if own else "the test set")]
    if any(len(group.seeds) > 1 for group in groups):
        found.append(SPREAD)
    if against is not None:
        found.append(AGAINST.format(name=printed_name(against.name)))
    unfinished = [group for group in groups if not group.finished]
    if unfinished:
        newest = [run.newest for group in unfinished for run in group.runs]
        held_out = any(one is not None and one.split == "validation" for one in newest)
        found.append(NEWEST.format(split=", on the validation split" if held_out else ""))
    repeats = [where(run) for group in groups for run in group.repeats]
    return [*found, REPEATED.format(names=", ".join(repeats))] if repeats else found


def number_row(group: Group, names: Sequence[str], against: Difference | None) -> dict[str, Any]:
    """Return a group's numbers with all their digits; shares, bytes and seconds."""
    row: dict[str, Any] = {"method": group.name, **{name: group.settings.get(name) for name in names}}
    row |= {"seeds": " ".join(map(str, group.seeds)), "state": group.runs[0].state}
    for name in ACCURACIES:
        values = group.values(attrgetter(name))
        row |= {name: mean(values), f"{name}_sd": deviation(values)}
    row |= {name: mean(group.values(measure)) for name, measure in COSTS.items()}
    if against is not None:
        row |= {"difference": against.mean, "difference_low": against.low, "difference_high": against.high}
        row["pairs"] = against.pairs
    return row


def chosen_baseline(groups: Sequence[Group], wanted: str | None) -> Group | None:
    """Return the group that others are compared with."""
    finished = [group for group in groups if group.finished]
    if wanted is None:
        paired = [
            group for group in finished[1:] if len(set(group.seeds) & set(finished[0].seeds)) > 1
        ]  # one pair has no interval
        return finished[0] if paired else None
    name, *conditions = (word.strip() for word in wanted.split(","))
    found = [
        group for group in finished if name.lower() in (group.name.lower(), printed_name(group.name).lower())
    ]
    rows = ", ".join(dict.fromkeys(group.name for group in finished)) or "none"
    if not found:
        raise InputError(f"no finished run is called {name!r}; the names in the table are: {rows}")
    rows_called = found
    for condition in conditions:
        setting, _, value = condition.partition("=")
        found = [group for group in found if value in values_of(group, setting)]
    if len(found) != 1:
        setting = next(iter(varying(rows_called)), "setting")
        values = ", ".join(dict.fromkeys(value_text(group.settings.get(setting)) for group in rows_called))
        raise InputError(
            f"{wanted!r} names {len(found)} rows of the table, and a baseline is one; add a setting in which "
            f"they differ, as in --baseline '{name},{setting}=VALUE', where VALUE is one of: {values}"
        )
    return found[0]


def values_of(group: Group, setting: str) -> set[str]:
    """Return a group's value of a setting, whose name is its own or a column's heading."""
    return {value_text(value) for name, value in group.settings.items() if setting in (name, short(name))}


def difference(group: Group, against: Group | None) -> Difference | None:
    """Return how much better a group's devices are on average than the baseline's, seed by seed."""
    if against is None or group is against or not group.finished:
        return None
    return paired_difference(*(one.values(attrgetter("device_mean")) for one in (group, against)))


def as_json(runs: Iterable[RunSummary], baseline: str | None = None) -> dict[str, Any]:
    """Return everything there is to show, for programs: groups, their runs, classes and confusion."""
    runs = list(runs)
    table, groups = results_table(runs, baseline), grouped(runs)
    described = []
    for group, row in zip(groups, table.numbers, strict=True):
        described.append(
            {
                **row,
                "settings": dict(group.settings),
                "runs": [
                    {"seed": run.seed, "folder": where(run), "state": run.state, **run_row(run)}
                    for run in group.runs
                ],
                "classes": list(group.classes),
                "confusion": None if group.confusion is None else group.confusion.tolist(),
            }
        )
    return {"schema": 1, "title": table.title, "varying": varying(groups), "groups": described}


def to_pandas(results: Sequence[RunResult]) -> pandas.DataFrame:
    """Return a row per run: what it is called, its seed, its final accuracies, bytes and seconds."""
    try:
        import pandas
    except ImportError:
        raise InputError("a data frame needs pandas; pip install pandas") from None
    rows = [
        {"method": result.called, "seed": result.seed, **run_row(RunSummary.of(result))} for result in results
    ]
    return pandas.DataFrame(rows)


def run_row(run: RunSummary) -> dict[str, Any]:
    """Return a run's newest numbers by name."""
    newest = run.newest
    row: dict[str, Any] = {"rounds": run.done}
    if newest is not None:
        row |= {name: getattr(newest, name) for name in ACCURACIES}
        row |= {name: measure(newest) for name, measure in COSTS.items()}
        row["class_accuracy"] = list(newest.class_accuracy)
    if run.final is not None:
        row |= {"converged_epoch": run.final.converged_epoch, "weights_sha256": run.final.weights_sha256}
    return row


def participation(records: Sequence[RoundRecord]) -> list[str]:
    """Return how often each device led and was kept, a line each, where the method chooses."""
    chosen = [record.selection for record in records if record.selection is not None]
    lines: list[str] = []
    for name in ("leader", "kept") if chosen else ():
        devices = [getattr(one, name) for one in chosen]
        shares = [sum(device in one for one in devices) / len(chosen) for device in records[0].bytes_sent]
        lines.append(f"{name + ' %':<9}by device: {' '.join(f'{100 * share:3.0f}' for share in shares)}")
    return lines


def label(group: Group, names: Sequence[str]) -> str:
    """Return what a group is called where only one line is about it."""
    own = [f"{short(name)} {value_text(group.settings.get(name))}" for name in names]
    return ", ".join([printed_name(group.name), *own, *([] if group.finished else [group.runs[0].state])])


def percent(values: Values, *, spread: bool = True) -> str:
    """Return an accuracy in percent, or the mean of several, ± their sample standard deviation."""
    center, sd = mean(values), deviation(values)
    if center is None:
        return NOTHING
    return f"{100 * center:.1f}" + (f"±{100 * sd:.1f}" if spread and sd is not None else "")


def in_points(found: Difference | None) -> str:
    """Return a difference of accuracies in points, with its interval if it has one."""
    if found is None:
        return NOTHING
    ends = [f"{100 * end:+.1f}" for end in (found.low, found.high) if end is not None]
    return f"{100 * found.mean:+.1f}" + (f" [{', '.join(ends)}]" if ends else "")


def short(name: str) -> str:
    """Return a setting's name as a heading."""
    return name.replace("_optimizer.", " ")


def value_text(value: object) -> str:
    """Return a setting's value as people write it."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds with commas, or as a range where they follow each other."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))
