"""A run that is wanted: its settings, complete, and the key its result is stored under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gapsl.methods.registry import METHODS
from gapsl.run.build import INCIDENTAL
from gapsl.run.config import Config, make_config, merge

Settings = Mapping[str, Any]

KEY_LENGTH = 16
# Where a run is computed and with how many threads does not make it another experiment.
PLACE = {"device", "threads"}
# What a name says besides where and how much is learned: settings that experiments compare.
TELLING = (
    "norm",
    "reduction",
    "device_gradient",
    "calibration",
    "balance",
    "probes",
    "probe_steps",
    "probe_leaders",
    "faults",
)


@dataclass(frozen=True)
class Planned:
    """A run that is wanted."""

    config: Config
    settings: Settings  # those that are not defaults
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
            f"lr {config.device_optimizer.lr:g}",
            f"seed {config.seed}",
            f"#{self.key[:4]}",  # so that no two have the same name
        ]
        return " ".join(words)


@dataclass(frozen=True)
class Wanted:
    """What is wanted as far as it is known: runs to do, and stand-ins for those that depend on them."""

    runs: Sequence[Planned]
    open: Sequence[Planned] = ()


def planned(*layers: Settings) -> Planned:
    """Return the run with these settings, later layers winning."""
    return _planned(json.dumps(merge(*layers), sort_keys=True))


@cache  # plans are made again whenever a run ends, and checking settings takes time
def _planned(text: str) -> Planned:
    return of_config(make_config(json.loads(text)))


def of_config(config: Config) -> Planned:
    """Return a configuration as a planned run."""
    settings = essential(config)
    return Planned(config, settings, key_of(settings))


def essential(config: Config) -> dict[str, Any]:
    """Return what makes a run this run: its method, its seed, and every setting that is not a default.

    Leaving the defaults out, a setting that a later version adds does not rename old runs. Of the methods'
    sections only the one that the method reads counts.
    """
    values = config.model_dump(mode="json", exclude_defaults=True, exclude=INCIDENTAL | PLACE)
    strategy = METHODS[config.method]
    own = config.own_settings()
    if strategy.section is not None and own:
        values[strategy.section] = own
    return {**values, "method": METHODS.canonical(config.method), "seed": config.seed}


def key_of(settings: Settings) -> str:
    """Return the key of a run with these essential settings, in whatever order they come."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
