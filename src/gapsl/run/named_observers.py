"""Observers by their names, as the setting `observers` has them: the built-in ones and those of plugins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gapsl.common.errors import GapslError, InputError
from gapsl.common.registry import Registry
from gapsl.run.mlflow_tracker import MLflow
from gapsl.run.observers import Observer
from gapsl.run.tensorboard_tracker import TensorBoard

OBSERVERS: Registry[type[Observer]] = Registry("observer", group="gapsl.observers", base=Observer)


def register_observer(name: str, observer: type[Observer]) -> type[Observer]:
    """Make an observer known by name, for the setting `observers`."""
    return OBSERVERS.register(name, observer)


def check_observers(names: Iterable[str]) -> None:
    """Refuse names that nobody knows, and observers that cannot work here."""
    for name in names:
        OBSERVERS[name].check()


def make_observers(names: Iterable[str], folder: Path | None) -> list[Observer]:
    """Return the observers with these names, for a run with this folder."""
    found: list[Observer] = []
    for name in names:
        try:
            observer = OBSERVERS[name](folder)
        except GapslError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(
                f"the observer {name} cannot begin ({reason}); leave it out, or mend it"
            ) from error
        observer.known_as = name
        found.append(observer)
    return found


register_observer("tensorboard", TensorBoard)
register_observer("mlflow", MLflow)
