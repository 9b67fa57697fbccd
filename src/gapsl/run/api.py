"""Training from Python, with the same words as the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gapsl.common.errors import InputError
from gapsl.common.files import room_needed
from gapsl.common.reading import read_given
from gapsl.data.download import Progress
from gapsl.data.from_python import GivenData
from gapsl.fleets.base import Fleet
from gapsl.methods.server_model import Loss, cross_entropy
from gapsl.models import GivenModel
from gapsl.run.build import make_parts, make_training
from gapsl.run.checkpoint import Checkpoints
from gapsl.run.config import Config, make_config, merge, preset, read_yaml, stretched
from gapsl.run.environment import threads
from gapsl.run.folder import RunFolder
from gapsl.run.local_fleet import make_fleet
from gapsl.run.named_observers import check_observers, make_observers
from gapsl.run.observers import Observer
from gapsl.run.parts import Given, Parts
from gapsl.run.records import RunResult

log = logging.getLogger("gapsl")


def train(
    config: Config | str | Path | None = None,
    *,
    model: str | GivenModel | None = None,
    dataset: str | GivenData | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    observers: Sequence[Observer | str] = (),
    stop: Callable[[], bool] = lambda: False,
    loss: Loss = cross_entropy,
    progress: bool | Progress = False,
    **settings: Any,
) -> RunResult | None:
    """Train one method and return its result; None if `stop` ended it early.

    Settings are those of a configuration file: `gapsl.train(method="gapsl", rounds=100, gapsl={"eta": 0.3})`.
    `model` takes a name, a module (with `cut=`) or a `Split` of two modules; `dataset` a name, a `Source`, a
    torch dataset, arrays (inputs, labels), a generator of samples, or a pair (train, test) of them;
    `observers` takes objects, and names as the setting does. With `out`, the run's files are kept there and
    `resume` works. `progress=True` shows a bar, also in a notebook; a function is told how much of a download
    is there.
    """
    told, by_name = told_apart(observers)
    words = {**settings, **by_name}
    if isinstance(model, str):
        model, words["model"] = None, model
    if isinstance(dataset, str):
        dataset, words["dataset"] = None, dataset
    chosen, given = compose(config, preset_name=preset, words=words), Given(model, dataset, loss)
    check_observers(chosen.observer_names)
    folder = None if out is None else RunFolder(Path(out).expanduser())
    if folder is not None:
        folder.check_free()
    with threads(chosen.threads), displayed(progress, chosen.method, told) as (everyone, download):
        parts = make_parts(chosen, given, progress=download)
        fleet = make_fleet(parts)
        if folder is None:
            everyone = [*everyone, *make_observers(chosen.observer_names, None)]
            return make_training(parts, fleet, observers=everyone, stop=stop, custom=given.names()).run()
        # Only now, when all that was given has turned out to be usable, is anything written.
        with folder.locked():
            RunFolder.create(folder.path, chosen, given.names())
            return _run_in(folder, parts, fleet, everyone, stop, given.names())


def resume(
    out: str | Path,
    *,
    model: GivenModel | None = None,
    dataset: GivenData | None = None,
    observers: Sequence[Observer | str] = (),
    stop: Callable[[], bool] = lambda: False,
    loss: Loss = cross_entropy,
    progress: bool | Progress = False,
    rounds: int | None = None,
    **incidental: Any,
) -> RunResult | None:
    """Go on with a run from its last checkpoint; a finished run's result is returned as it is.

    With `rounds`, training goes on until so many rounds are done, beyond what was planned: exactly as if
    they had been planned at first, if nothing depends on how far the end is, and with a warning otherwise.

    A run that was given objects needs the same ones again. `incidental` settings, such as `data_dir`,
    may differ from those it was started with.
    """
    folder = RunFolder.open(Path(out).expanduser())
    config, custom = folder.config()
    done = folder.result()
    if done is not None and (rounds is None or rounds == done.rounds):
        return done
    if done is not None and rounds is not None:
        refuse_fewer(folder, rounds, done.rounds)
    refuse_lost_checkpoints(folder, config)
    if folder.network_file.exists():
        raise InputError(
            f"{out} has its devices elsewhere; go on with it by: {folder.go_on}, "
            "with its --listen and --certs"
        )
    given = Given(model, dataset, loss)
    given.check("resume", out, custom)
    told, by_name = told_apart(observers)
    config = compose(config, words={**incidental, **by_name})
    check_observers(config.observer_names)
    shown = displayed(progress, config.method, told)
    with threads(config.threads), folder.locked(), shown as (everyone, download):
        parts = make_parts(config, given, partition_file=folder.partition_file, progress=download)
        if rounds is not None:
            parts = extended(folder, parts, rounds, custom)
        return _run_in(folder, parts, make_fleet(parts), everyone, stop, custom)


def extended(folder: RunFolder, parts: Parts, rounds: int, custom: Mapping[str, str]) -> Parts:
    """Return the parts of a run that is to have more rounds, and write that down in its folder."""
    refuse_fewer(folder, rounds, parts.total_rounds)
    if rounds == parts.total_rounds:
        return parts
    config = compose(parts.config, words={"extended_to": rounds})
    # Before it is written down: a run that cannot go on stays as it is.
    folder.check_records(max(Checkpoints(folder.checkpoints, run="", keep=1).found(), default=0))
    folder.extend(config, custom)
    if why := stretched(config):
        log.warning("extended to %d rounds: %s", rounds, why)
    return replace(parts, config=config, total_rounds=rounds)


def refuse_fewer(folder: RunFolder, rounds: int, planned: int) -> None:
    """Refuse to make a run shorter than it is or was to be."""
    if rounds < planned:
        raise InputError(f"{folder.path} has {planned} rounds already; to train longer, give more than that")


def refuse_lost_checkpoints(folder: RunFolder, config: Config) -> None:
    """Refuse a run that has lost its checkpoints: it would begin anew, and its records would be gone."""
    last = max((record.round for record in folder.records()), default=0)
    had = last > config.checkpoint_every or folder.result() is not None
    if had and not Checkpoints(folder.checkpoints, run="", keep=1).found():
        raise InputError(
            f"{folder.path} has lost its checkpoints, and its records go to round {last}; put them back from "
            "a copy of the folder, or delete records.jsonl to begin anew"
        )


def told_apart(observers: Sequence[Observer | str]) -> tuple[list[Observer], dict[str, list[str]]]:
    """Return the observers that are objects, and those that are names as settings."""
    names = [one for one in observers if isinstance(one, str)]
    return [one for one in observers if not isinstance(one, str)], {"observers": names} if names else {}


@contextmanager
def displayed(
    progress: bool | Progress, name: str, observers: Sequence[Observer]
) -> Iterator[tuple[Sequence[Observer], Progress | None]]:
    """Return who is told of a run's rounds, with a display among them if one is wanted, and of downloads."""
    if not isinstance(progress, bool):
        yield observers, progress
    elif not progress:
        yield observers, None
    else:
        shows = import_module("gapsl.analysis.progress")  # by name: most runs need no display
        with shows.Display() as display:
            yield [*observers, shows.RunProgress(display, name)], display.download


def compose(
    config: Config | str | Path | None = None,
    *,
    preset_name: str | None = None,
    words: Mapping[str, Any] | None = None,
) -> Config:
    """Lay preset, file and words over each other, later ones winning, and validate the whole."""
    layers: list[Mapping[str, Any]] = []
    if preset_name is not None:
        layers.append(preset(preset_name))
    if isinstance(config, Config):
        layers.append(config.given())
    elif config is not None:
        layers.append(read_yaml(Path(config).expanduser(), read_given))
    words = words or {}
    lengths = {name for name in ("rounds", "epochs") if words.get(name) is not None}
    if len(lengths) == 2:
        raise InputError("rounds and epochs both say how long to train; give one of them")
    if lengths:  # a number of rounds outranks a preset's epochs, and the reverse
        layers.append({"rounds": None, "epochs": None})
    return make_config(merge(*layers, words))


def _run_in(
    folder: RunFolder,
    parts: Parts,
    fleet: Fleet,
    observers: Sequence[Observer],
    stop: Callable[[], bool],
    custom: Mapping[str, str],
) -> RunResult | None:
    """Train with a run's files, from its last checkpoint if it has one."""
    everyone = [*observers, *make_observers(parts.config.observer_names, folder.path)]
    training = make_training(parts, fleet, folder=folder, observers=everyone, stop=stop, custom=custom)
    training.resume()
    with room_needed(folder.path, f"gapsl resume {folder.quoted}"):
        return training.run()
