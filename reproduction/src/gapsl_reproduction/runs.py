"""A run of an experiment: its settings, and the key its result is stored under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gapsl.methods.registry import METHODS
from gapsl.run.config import INCIDENTAL, Config, flat, make_config, merge

Settings = Mapping[str, Any]

KEY_LENGTH = 16
# Where a run is computed and with how many threads does not make it another experiment.
PLACE = {"device", "threads"}
# Settings that have another name than in the table of defaults, by their present name.
RENAMED: Mapping[str, str] = {}
# What a name says besides where and how much is learned: settings that experiments compare.
TELLING = (
    "norm",
    "reduction",
    "calibration",
    "balance",
    "probes",
    "probe_steps",
    "probe_leaders",
    "robust",
    "faults",
)


@dataclass(frozen=True)
class RunSpec:
    """A run that is wanted."""

    config: Config
    settings: Settings  # those that differ from the table of defaults
    key: str

    @property
    def name(self) -> str:
        """What it is, for a person, in one line."""
        config = self.config
        words = [
            f"{config.dataset}/{config.model}",
            self.settings["method"],
            *(f"{name}={value}" for name, value in config.own_settings().items()),
            *(f"{name}={self.settings[name]}" for name in TELLING if name in self.settings),
            config.partition,
            *([f"{config.devices} devices"] if "devices" in self.settings else []),
            f"lr {config.device_optimizer.lr:g}/{config.server_optimizer.lr:g}",
            f"{config.rounds} rounds" if config.rounds else f"{config.epochs} epochs",
            f"seed {config.seed}",
            f"#{self.key[:4]}",  # so that no two have the same name
        ]
        return " ".join(words)


@dataclass(frozen=True)
class Wanted:
    """What is wanted as far as it is known: runs to do, and stand-ins for those that depend on them."""

    runs: Sequence[RunSpec]
    open: Sequence[RunSpec] = ()


def run_spec(*layers: Settings) -> RunSpec:
    """Return the run with these settings, later layers winning."""
    return _run_spec(json.dumps(merge(*layers), sort_keys=True))


@cache  # plans are made again whenever a run ends, and checking settings takes time
def _run_spec(text: str) -> RunSpec:
    return of_config(make_config(json.loads(text)))


def of_config(config: Config) -> RunSpec:
    """Return a configuration as a run of an experiment."""
    settings = essential(config)
    return RunSpec(config, settings, key_of(settings))


def essential(config: Config) -> dict[str, Any]:
    """Return what makes a run this run: its method, its seed, and what differs from the table of defaults.

    The table is frozen: a default or a name that changes later does not rename the runs that are stored.
    Of the methods' sections only the one that the method reads counts.
    """
    method = METHODS[config.method]
    others = {other.section for other in METHODS.values()} - {method.section}
    resolved = config.resolved()
    if method.section is not None:  # of the settings that share its section, its own alone
        resolved[method.section] = config.parameters().model_dump(mode="json", by_alias=True)
    kept = {name: value for name, value in resolved.items() if name not in INCIDENTAL | PLACE | others}
    settings: dict[str, Any] = {}
    for name, value in flat(kept).items():
        frozen = RENAMED.get(name, name)
        if frozen not in defaults() or defaults()[frozen] != value:
            settings = merge(settings, nested(frozen, value))
    return {**settings, "method": METHODS.canonical(config.method), "seed": config.seed}


@cache
def defaults() -> Mapping[str, Any]:
    """Return the frozen table: the value each setting is compared with."""
    text = resources.files("gapsl_reproduction").joinpath("defaults.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def nested(name: str, value: Any) -> dict[str, Any]:
    """Return a setting in its section."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def key_of(settings: Settings) -> str:
    """Return the key of a run with these essential settings, in whatever order they come."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
