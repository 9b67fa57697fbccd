"""Runs beside each other: curves with bands over seeds, the table of results, differences with intervals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from gapsl.analysis.looks import looks_of, shade
from gapsl.analysis.runs import Group, grouped, varying
from gapsl.analysis.tables import difference, label, results_table
from gapsl.dashboard.downsample import Answer, Buckets, Numbers, numbers
from gapsl.dashboard.record_index import AXES, columns
from gapsl.dashboard.watch import Watch, WatchedRun
from gapsl.run.records import MEASURES

POINTS = 300  # of a curve


@dataclass(frozen=True, eq=False)
class Alike:
    """Runs that differ in nothing but the seed, finished or not."""

    group: Group
    runs: tuple[WatchedRun, ...]


def comparison(watch: Watch) -> Answer:
    """Return everything there is to compare the runs by."""
    summaries = {run.number: run.summary() for run in watch.runs}
    found: dict[str, list[int]] = {}
    for number, run in summaries.items():
        found.setdefault(json.dumps([run.name, run.settings], sort_keys=True, default=str), []).append(number)
    alike = [
        Alike(Group(tuple(summaries[n] for n in members)), tuple(watch.runs[n] for n in members))
        for members in found.values()
    ]
    names = varying([one.group for one in alike])
    table = results_table(summaries.values())
    finished = [group for group in grouped(summaries.values()) if group.finished]
    return {
        "groups": described(alike, names),
        "table": {
            "title": table.title,
            "columns": [{"heading": c.heading, "cells": c.cells, "key": c.key} for c in table.columns],
            "notes": list(table.notes),
        },
        "finished": [label(group, names) for group in finished],
        "differences": [[pair(one, other) for other in finished] for one in finished],
    }


def described(alike: list[Alike], names: list[str]) -> list[Answer]:
    """Return the groups with their colours, the same as in pictures, and their curves."""
    looks = looks_of(dict.fromkeys(one.group.name for one in alike))
    answer, called = [], [one.group.name for one in alike]
    for number, one in enumerate(alike):
        name = one.group.name
        tables = [evaluations(run) for run in one.runs]
        answer.append(
            {
                "label": label(one.group, names).removesuffix(f", {one.group.runs[0].state}"),
                "colour": shade(looks[name].colour, called[:number].count(name)),
                "seeds": [
                    {
                        "seed": run.settings["seed"],
                        "id": run.number,
                        **{k: numbers(v) for k, v in drawn(table).items()},
                    }
                    for run, table in zip(one.runs, tables, strict=True)
                ],
                "band": {
                    k: numbers(v) for k, v in band([table for table in tables if len(table["round"])]).items()
                },
            }
        )
    return answer


def evaluations(run: WatchedRun) -> dict[str, Numbers]:
    """Return a run's evaluations as columns."""
    with run.index.lock:
        return columns(run.index.evaluations, (*AXES, *MEASURES))


def drawn(table: dict[str, Numbers]) -> dict[str, Numbers]:
    """Return columns with no more rows than a curve needs."""
    rows = len(table["round"])
    if rows <= POINTS:
        return table
    buckets = Buckets.of(rows, POINTS)
    return {name: buckets.last(c) if name in AXES else buckets.over(c)[0] for name, c in table.items()}


def band(tables: list[dict[str, Numbers]]) -> dict[str, Numbers]:
    """Return mean and standard deviation over seeds, as far as the shortest run is; nothing for one run."""
    if len(tables) < 2:
        return {}
    length = min(len(table["round"]) for table in tables)
    stacked = {name: np.array([table[name][:length] for table in tables]) for name in tables[0]}
    found = {name: rows.mean(axis=0) for name, rows in stacked.items()}
    found |= {f"{name}_sd": stacked[name].std(axis=0, ddof=1) for name in MEASURES}
    return drawn(found)


def pair(one: Group, other: Group) -> dict[str, Any] | None:
    """Return how much better one group is than another, seed by seed, in points."""
    found = difference(one, other)
    if found is None:
        return None
    points = {"mean": found.mean, "low": found.low, "high": found.high}
    return {k: v if v is None else 100 * v for k, v in points.items()} | {"pairs": found.pairs}
