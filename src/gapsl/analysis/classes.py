"""Classes beside each other: the accuracy on each, and which is taken for which."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from gapsl.analysis.formats import Column, Table
from gapsl.analysis.runs import RunSummary, grouped, varying
from gapsl.analysis.statistics import deviation, mean
from gapsl.analysis.tables import SPREAD, label, percent, seeds_text, title
from gapsl.common.errors import InputError
from gapsl.run.records import Evaluation


def classes_table(runs: Iterable[RunSummary]) -> Table:
    """Return the accuracy by class, a column per group."""
    groups = [group for group in grouped(runs) if group.classes]
    if not groups:
        raise InputError("there is no accuracy by class; it comes with the first evaluation on a test set")
    names = varying(groups)
    classes = max((group.classes for group in groups), key=len)
    columns, numbers = [Column("class", classes, key=True)], []
    for group in groups:
        by_class = [group.values(partial(of_class, c)) for c in range(len(classes))]
        columns.append(Column(label(group, names), tuple(map(percent, by_class))))
        who = {"method": group.name, **{name: group.settings.get(name) for name in names}}
        who |= {"seeds": seeds_text(group.seeds), "state": group.runs[0].state}
        numbers += [
            {**who, "class": name, "accuracy": mean(values), "accuracy_sd": deviation(values)}
            for name, values in zip(classes, by_class, strict=True)
        ]
    about = ["Accuracy in % by class, mean over the devices."]
    about += [SPREAD] if any(len(group.seeds) > 1 for group in groups) else []
    return Table(title(groups, names), tuple(columns), tuple(about), tuple(numbers))


def of_class(index: int, evaluation: Evaluation) -> float | None:
    """Return the accuracy on a class, None where it is not known."""
    return dict(enumerate(evaluation.class_accuracy)).get(index)


def confusion_tables(runs: Iterable[RunSummary]) -> list[Table]:
    """Return of each group in which share a class is taken for which, a row per true class."""
    groups = [group for group in grouped(runs) if group.confusion is not None]
    if not groups:
        raise InputError(
            "there is no confusion matrix; runs of this version and later ones store it at their end"
        )
    names = varying(groups)
    tables = []
    for group in groups:
        counts, classes = group.confusion, group.classes
        assert counts is not None
        shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        columns = [Column("true", classes, key=True)]
        columns += [Column(name, tuple(f"{x:.0f}" for x in shares[:, c])) for c, name in enumerate(classes)]
        who = {"method": group.name, **{name: group.settings.get(name) for name in names}}
        rows = [
            {**who, "true": true, **dict(zip(classes, map(int, row), strict=True))}
            for true, row in zip(classes, counts, strict=True)
        ]
        about = (
            f"{label(group, names)}: in how many % of its samples a class (row) is taken for which (column)"
        )
        tables.append(Table(f"{about}; {title(groups, names)}.", tuple(columns), (), tuple(rows)))
    return tables
