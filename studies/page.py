"""The page of the study, written from the stored results alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gapsl_reproduction.report.numbers import ENOUGH, minus, told
from gapsl_reproduction.report.verdicts import State, above_zero

from gapsl.analysis.statistics import Values
from studies.runs import CATALOGUE, GROUPS, Group
from studies.task import HELD_OUT, PICTURES, Setting

Record = Mapping[str, Any]
Rows = Mapping[tuple[str, int], Mapping[int, Record]]  # by name and rounds, then by seed

COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("worst device %", "device_min", lambda value: f"{100 * value:.1f}"),
    ("ensemble %", "ensemble", lambda value: f"{100 * value:.1f}"),
    ("merged %", "merged", lambda value: f"{100 * value:.1f}"),
    ("training loss", "training_loss", lambda value: f"{value:.2f}"),
    ("drift", "drift", lambda value: f"{value:.3f}"),
    ("apart", "apart", lambda value: f"{value:.3f}"),
)
SAID = {
    State.SO: "above the base",
    State.NOT_SO: "below the base",
    State.UNDECIDED: "not to be told from the base",
}
FEW = "with too few seeds to tell"
GONE = Group("No longer in the catalogue", "Stored results of runs that are not made any more.", base="")


def write_page(records: Sequence[Record]) -> str:
    """Return the whole page in Markdown."""
    known = {run.name: run.group for run in CATALOGUE}
    parts = [introduction(records)]
    for key, group in {**GROUPS, "": GONE}.items():
        own = [r for r in records if known.get(r["name"], "") == key]
        beside = [r for r in records if r["name"] in group.beside]
        if own:
            rows = rows_of([*beside, *own], known)
            shown = [group.caption, table(rows, group.base), in_words(rows, group.base)]
            parts.append("\n\n".join([f"## {group.title}", *filter(None, shown)]))
    return "\n\n".join(parts) + "\n"


def introduction(records: Sequence[Record]) -> str:
    """Return what a reader has to know before the tables."""
    setting = Setting()
    seeds = sorted({r["seed"] for r in records})
    commits = ", ".join(sorted({short(r["commit"]) for r in records}))
    error = 100 * math.sqrt(0.25 / HELD_OUT)  # at most: that of a half
    return f"""# Keeping client-side models together: a study with a small net

**This is a toy: a small net on small pictures, trained for minutes. Nothing about CIFAR-10 at scale follows
from it.** It chose what to build; [results.md](results.md) says what that is worth.

Written by `python -m studies.small_net --table` from `studies/results.jsonl`, where every number is from.

Devices that train client-side models of their own drift apart when they see different classes. These runs
compare remedies, one thing changed at a time, to choose what to build. They are small, their accuracies are
those on validation pictures, and some settings were chosen by them. The methods are compared on test pictures
that nothing here has seen.

- **Data**: {PICTURES:,} of CIFAR-10's training pictures, averaged to 16×16 pixels, {HELD_OUT:,} of them
  held out; {setting.devices} devices, partition `{setting.partition}`; batches of {setting.batch_size},
  shifted and mirrored.
- **Net**: seven convolutions with group normalisation, the first four on the device; a linear classifier.
- **Training**: SGD with momentum {setting.momentum:g}, {setting.warm_up} rounds of warm-up, then a cosine;
  the server's learning rate is {setting.server_lr:g}. A device gets the gradient of its own loss.
- **Measured** once, after the last round, on the held-out pictures: the accuracy of the devices on average
  and of the worst of them; of an *ensemble*, which adds up what all make of a picture; and of one client-side
  model with their mean weights, *merged*. *Drift* is the distance of a client-side model's weights from the
  start, relative to their length there; *apart* that of activations from their mean, relative to it. The
  training loss is the server's over the last tenth of the rounds: a plain, a balanced and a calibrated one
  do not compare.
- **Seeds**: {", ".join(map(str, seeds))}; a row says how many of them it has. They draw the partition, too.
  ± is the standard deviation over seeds; a difference is paired by seed, with its 95 % interval by
  Student's t where there are three, which decides whether a run is above or below its base; of twenty such
  intervals one misses by chance. The held-out pictures alone leave a standard error of up to {error:.1f}
  points for one model.
- **Commits**: {commits}.
- **Missing**: {missing(records)}."""


def missing(records: Sequence[Record]) -> str:
    """Return the runs of the catalogue that no seed has yet."""
    known = {record["name"] for record in records}
    return ", ".join(f"`{run.name}`" for run in CATALOGUE if run.name not in known) or "nothing"


def short(commit: str | None) -> str:
    """Return a commit as one quotes it, with what is said about changes to it."""
    number, plus, changes = (commit or "unknown").partition("+")
    return f"`{number[:9]}{plus}{changes}`"


def rows_of(records: Sequence[Record], known: Mapping[str, str]) -> Rows:
    """Return the records of every run and number of rounds by seed, in the catalogue's order."""
    order = {name: place for place, name in enumerate(known)}
    rows: dict[tuple[str, int], dict[int, Record]] = {}
    for record in records:
        rows.setdefault((record["name"], record["rounds"]), {})[record["seed"]] = record
    return dict(sorted(rows.items(), key=lambda row: (order.get(row[0][0], len(order)), row[0])))


def lead(rows: Rows, name: str, rounds: int, base: str) -> Values:
    """Return how far a run is above the base of as many rounds, by seed; nothing if it is the base."""
    bases = [each for each in (base, f"{base}-twice") if (each, rounds) in rows]
    if not bases or name in bases:
        return {}
    return minus(accuracies(rows[name, rounds]), accuracies(rows[bases[0], rounds]))


def table(rows: Rows, base: str) -> str:
    """Return a table with a row for every run and number of rounds."""
    why = {run.name: run.why for run in CATALOGUE}
    compared = f"− `{base}`" if base else "difference"
    titles = ["run", "rounds", "seeds", "devices %", compared, *(title for title, _, _ in COLUMNS), "why"]
    lines = [titles, ["---"] * len(titles)]
    for (name, rounds), found in rows.items():
        ahead = lead(rows, name, rounds, base)
        numbers = [spread([r[key] for r in found.values()], shown) for _, key, shown in COLUMNS]
        devices = spread(list(accuracies(found).values()), lambda value: f"{value:.1f}")
        lines.append(
            [f"`{name}`", str(rounds), str(len(found)), devices, told(ahead) if ahead else "", *numbers,
             why.get(name, "")]
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def in_words(rows: Rows, base: str) -> str:
    """Say which runs are told from their base by the interval of their differences; nothing without any."""
    found: dict[str, list[str]] = {said: [] for said in (*SAID.values(), FEW)}
    for name, rounds in rows:
        ahead = lead(rows, name, rounds, base)
        if ahead:
            found[SAID[above_zero(ahead)] if len(ahead) >= ENOUGH else FEW].append(f"`{name}`")
    parts = [f"{said}: {', '.join(names)}" for said, names in found.items() if names]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if parts else ""


def accuracies(found: Mapping[int, Record]) -> Values:
    """Return the accuracy of the devices on average, in percent, by seed."""
    return {seed: 100 * record["device_mean"] for seed, record in found.items()}


def spread(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """Return the mean of some values, with their standard deviation where there is more than one."""
    mean = shown(statistics.fmean(values))
    return f"{mean} ± {shown(statistics.stdev(values))}" if len(values) > 1 else mean
