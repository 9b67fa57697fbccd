"""Runs as tables and pictures show them: finished or not, and grouped by their settings.

Runs with the same name and the same settings, the seed aside, are one group. Everything else that differs is
named (`varying`), so that nothing is ever averaged but seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapsl.common.errors import InputError
from gapsl.methods.registry import METHODS
from gapsl.run.build import DEFAULT_EPOCHS
from gapsl.run.config import (
    INCIDENTAL,
    Config,
    flat,
    make_config,
    merge,
    preset,
    presets,
    sections,
)
from gapsl.run.folder import RunFolder
from gapsl.run.records import Evaluation, FinalEvaluation, RoundRecord, RunResult
from gapsl.run.status import planned_rounds

OWN_DATA = "own data"  # in place of a partition, where devices bring theirs


@dataclass(frozen=True, eq=False)
class RunSummary:
    """What there is to show of a run."""

    name: str  # its label, or its method
    seed: int
    settings: Mapping[str, Any]  # by dotted name, without the seed and what changes no number
    history: tuple[Evaluation, ...]
    done: int  # rounds
    total: int
    final: FinalEvaluation | None = None  # None: it is not finished
    classes: tuple[str, ...] = ()
    folder: RunFolder | None = None

    @property
    def newest(self) -> Evaluation | None:
        """The newest evaluation; of a finished run the one on the test set."""
        return self.final or (self.history[-1] if self.history else None)

    @property
    def state(self) -> str:
        """How far it is, in words."""
        return "finished" if self.final is not None else f"round {self.done} of {self.total}"

    @staticmethod
    def of(result: RunResult, folder: RunFolder | None = None) -> RunSummary:
        """Return what there is to show of a finished run."""
        return RunSummary(
            name=result.called,
            seed=result.seed,
            settings=settings_of(result.config),
            history=result.history,
            done=result.rounds,
            total=result.rounds,
            final=result.final,
            classes=result.classes,
            folder=folder,
        )

    @staticmethod
    def read(folder: RunFolder) -> RunSummary:
        """Read the run in a folder, finished or not."""
        result = folder.result()
        if result is not None:
            return RunSummary.of(result, folder)
        given = stored_settings(folder)
        history: list[Evaluation] = []
        last: RoundRecord | None = None
        for last in folder.records():
            history += [last.evaluation] if last.evaluation is not None else []
        return RunSummary(
            name=str(given.get("label") or given["method"]),
            seed=int(given["seed"]),
            settings=settings_of(given),
            history=tuple(history),
            done=0 if last is None else last.round,
            total=planned_rounds(given, last),
            folder=folder,
        )


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but the seed, one per seed; of those not finished one alone."""

    runs: tuple[RunSummary, ...]
    repeats: tuple[RunSummary, ...] = ()  # with a seed that is there already: they count for nothing

    @property
    def name(self) -> str:
        """What its runs are called."""
        return self.runs[0].name

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings its runs share."""
        return self.runs[0].settings

    @property
    def finished(self) -> bool:
        """Whether its runs are."""
        return self.runs[0].final is not None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds it has, in ascending order."""
        return tuple(run.seed for run in self.runs)

    def values(self, measure: Callable[[Evaluation], float | None]) -> dict[int, float]:
        """Return a measure of the newest evaluations by seed, where it is known."""
        found = {run.seed: measure(run.newest) for run in self.runs if run.newest is not None}
        return {seed: value for seed, value in found.items() if value is not None}

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes' names, numbers where no run has stored them; empty before the first evaluation."""
        size = max((len(run.newest.class_accuracy) for run in self.runs if run.newest is not None), default=0)
        named = next((run.classes for run in self.runs if len(run.classes) == size), None)
        return named or tuple(map(str, range(size)))

    @cached_property
    def confusion(self) -> NDArray[np.int64] | None:
        """How many samples of each class were taken for which, over all devices and seeds, if stored."""
        found = [run.final.confusion for run in self.runs if run.final is not None and run.final.confusion]
        return np.sum([np.array(one) for one in found], axis=0) if found else None

    @cached_property
    def told_by_name(self) -> set[str]:
        """The settings that come with the method, or the preset, that the group is named after."""
        method = str(self.settings["method"])
        known = METHODS[method] if method in METHODS else None  # noqa: SIM401 - a registry raises no KeyError
        of_preset = flat(preset(self.name)) if self.name in presets() else {}
        section = known.section if known is not None else None
        own = {name for name in self.settings if section and name.startswith(f"{section}.")}
        return {"method", *of_preset, *(flat(known.defaults) if known is not None else ()), *own}


def grouped(runs: Iterable[RunSummary]) -> list[Group]:
    """Return the runs by name and settings, in the order in which they first appear."""
    found: dict[str, dict[int, list[RunSummary]]] = {}
    for run in runs:
        alone = None if run.final is not None else [run.seed, run.done, str(run.folder and run.folder.path)]
        key = json.dumps([run.name, run.settings, alone], sort_keys=True, default=str)
        found.setdefault(key, {}).setdefault(run.seed, []).append(run)
    return [
        Group(
            tuple(runs[0] for _, runs in sorted(by_seed.items())),
            tuple(run for runs in by_seed.values() for run in runs[1:]),
        )
        for by_seed in found.values()
    ]


def varying(groups: Sequence[Group]) -> list[str]:
    """Return the settings in which groups differ, beyond what their names tell."""
    names = list(dict.fromkeys(name for group in groups for name in group.settings))
    called: dict[str, list[Group]] = {}
    for group in groups:
        called.setdefault(group.name, []).append(group)

    def differ(name: str, among: Sequence[Group]) -> bool:
        return len({json.dumps(group.settings.get(name), default=str) for group in among}) > 1

    return [
        name
        for name in names
        if any(differ(name, same) for same in called.values())
        or differ(name, [group for group in groups if name not in group.told_by_name])
    ]


def stored_settings(folder: RunFolder) -> dict[str, Any]:
    """Return a run's settings as its files have them, those included that an older version did not know."""
    given = folder.settings()
    own = {"partition": OWN_DATA} if (folder.network() or {}).get("data") == "own" else {}
    return merge(Config().model_dump(mode="json"), given, own)


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a run's numbers follow from, by dotted name, without the seed."""
    custom = given.get("custom") or {}
    values = {name: value for name, value in given.items() if name != "custom"}
    try:
        values = make_config(values).resolved()
    except InputError:  # a method or a setting that is not known here
        values = merge(Config().model_dump(mode="json"), values)
    method = str(values["method"])
    own = METHODS[method].section if method in METHODS else None
    values = {**values, **custom}
    if values.get("extended_to") is not None:
        values["rounds"] = values["extended_to"]
    if values.get("rounds") is not None:
        values["epochs"] = None
    elif values.get("epochs") is None:
        values["epochs"] = DEFAULT_EPOCHS
    left_out = INCIDENTAL | {"seed"} | (sections() - {own})
    left_out |= {"robust_trim"} if values.get("robust") != "trimmed" else set()
    return flat({name: value for name, value in values.items() if name not in left_out})


def where(run: RunSummary) -> str:
    """Return the name of a run's folder, or what it is where it has none."""
    return run.folder.path.name if run.folder is not None else f"{run.name} with seed {run.seed}"
