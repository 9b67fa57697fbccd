"""Every setting of a run in one place, typed and validated, with its default and its meaning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from gapsl.common.errors import InputError
from gapsl.common.reading import SMALL, read_bytes
from gapsl.common.registry import nearest
from gapsl.common.settings import brief, in_words
from gapsl.methods.base import Parameters, Strategy
from gapsl.methods.registry import METHODS
from gapsl.models.part import OptimizerConfig
from gapsl.options.settings import OptionSettings

PRESETS = Path(__file__).parent / "presets"

# Settings that may change between two processes of one run without making it another.
INCIDENTAL = {
    "data_dir", "label", "observers", "tensorboard", "checkpoint_every", "keep_checkpoints", "extended_to",
    "processes", "graph_memory", "fleet", "ray_address",
}  # fmt: skip


def _processes(given: Any) -> Any:
    """Read a number of processes."""
    if given == "auto" or (str(given).isdecimal() and int(given) >= 1):
        return given if given == "auto" else int(given)
    raise ValueError("give a number of 1 or more, or auto")


class Config(OptionSettings):
    """A run's settings. Sections named after methods (gapsl, epsl, sfl, ...) hold the methods' own."""

    method: str = Field("gapsl", description="the method (see `gapsl methods`)")
    rounds: int | None = Field(None, ge=1, le=10**9, description="rounds to train; unset: by `epochs`")
    epochs: int | None = Field(
        None, ge=1, le=10**9, description="epochs to train if `rounds` is unset; unset: 20"
    )
    extended_to: int | None = Field(
        None, ge=1, le=10**9, description="rounds to train after all; `gapsl resume --rounds` sets it"
    )
    participation: float = Field(1.0, gt=0, le=1, description="share of the devices in each round")
    server_optimizer: OptimizerConfig = Field(OptimizerConfig(), description="trains the server-side model")
    processes: Annotated[int | Literal["auto"], BeforeValidator(_processes)] = Field(
        1, description="processes that compute devices side by side; `auto`: one per core"
    )
    fleet: Literal["local", "ray"] = Field(
        "local", description="where processes are: on this machine, or actors of a Ray cluster"
    )
    ray_address: str | None = Field(
        None, min_length=1, description="a Ray cluster, `auto` or HOST:PORT; unset: one is started here"
    )
    graph_memory: int = Field(
        2048,
        ge=1,
        le=10**9,
        description="MB for graphs of devices that wait for replies; the rest is computed again",
    )
    evaluate_every: int | None = Field(None, ge=1, description="rounds between evaluations; unset: one epoch")
    evaluate_devices: int | None = Field(
        None, ge=1, description="devices that are evaluated, drawn once by the seed; unset: all"
    )
    angles: Literal["auto", "all", "off"] = Field(
        "auto",
        description="angles that cost further passes, or of over 100 devices: at evaluations, always, never",
    )
    checkpoint_every: int = Field(20, ge=1, description="rounds between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="checkpoints kept")
    label: str | None = Field(
        None, min_length=1, max_length=40, description="what tables and plots call the run; unset: its method"
    )
    observers: tuple[str, ...] = Field(
        (), description="who is told of every round: `tensorboard`, `mlflow`, or observers that plugins bring"
    )
    tensorboard: bool = Field(False, description="write TensorBoard events into the run's folder")
    sections: dict[str, dict[str, Any]] = Field(
        default_factory=dict, exclude=True, description="the methods' own settings, by section"
    )

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, given: Any) -> Any:
        """Lay the method's defaults under what is given, and move the methods' sections into one place."""
        if not isinstance(given, Mapping):
            return given
        names, method = sections(), given.get("method")
        if "sections" in given:
            raise ValueError(
                f"unknown setting 'sections'; the methods' sections are {', '.join(sorted(names))}"
            )
        if isinstance(method, str) and method in METHODS:
            given = merge(METHODS[method].defaults, given)
        found = {key: value for key, value in given.items() if key in names}
        for key, value in found.items():
            if not isinstance(value, Mapping):
                raise ValueError(f"{key} must be a section of settings, like {key}: {{name: value}}")
        return {**{key: value for key, value in given.items() if key not in names}, "sections": found}

    @model_validator(mode="after")
    def _check_sections(self) -> Config:
        METHODS.canonical(self.method)
        for name, given in self.sections.items():
            users = [s for s in METHODS.values() if s.section == name]
            # A section serves every method that reads it, the ablations with a setting more included.
            known = {key for s in users for key in setting_names(s.parameters)}
            for key in given:
                if key not in known:
                    raise ValueError(f"unknown setting '{name}.{key}'; {nearest(key, known)}")
            for strategy in users:  # also where another method is chosen: a wrong value is a mistake
                self._validated(strategy)
        return self

    @property
    def observer_names(self) -> tuple[str, ...]:
        """The observers that the settings ask for."""
        return tuple(dict.fromkeys([*self.observers, *(["tensorboard"] if self.tensorboard else [])]))

    def parameters(self) -> Parameters:
        """Return the chosen method's own settings."""
        return self._validated(METHODS[self.method])

    def own_settings(self) -> dict[str, Any]:
        """Return those of the chosen method's own settings that are not defaults, as plain values."""
        return self.parameters().model_dump(mode="json", exclude_defaults=True, by_alias=True)

    def _validated(self, strategy: type[Strategy]) -> Parameters:
        if strategy.section is None:
            return strategy.parameters()
        names = setting_names(strategy.parameters)
        given = {k: v for k, v in self.sections.get(strategy.section, {}).items() if k in names}
        try:
            return strategy.parameters.model_validate(given)
        except ValidationError as error:
            raise ValueError(explain(error, strategy.section)) from None

    def given(self) -> dict[str, Any]:
        """Return the settings that were given, and nothing of the others' defaults, as plain values."""
        return {**self.model_dump(mode="json", exclude_unset=True), **self.sections}

    def resolved(self, custom: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return all settings as plain values, with the chosen method's own; `custom` names given objects."""
        values = self.model_dump(mode="json")
        values["method"] = METHODS.canonical(self.method)
        values.update({name: dict(section) for name, section in self.sections.items()})
        section = METHODS[self.method].section
        if section is not None:
            values.setdefault(section, {}).update(self.parameters().model_dump(mode="json", by_alias=True))
        return {**values, "custom": dict(custom)} if custom else values


def differing(before: Config, now: Config, beyond: Collection[str] = ()) -> list[str]:
    """Return the settings that make two runs different ones, other than those named; the method first."""
    old, new = before.resolved(), now.resolved()
    names = {*old, *new} - INCIDENTAL - set(beyond)
    return sorted((n for n in names if old.get(n) != new.get(n)), key=lambda name: (name != "method", name))


def stretched(config: Config) -> str | None:
    """Say what depends on how many rounds there are, so that training longer is not the same as at first."""
    for name in ("device_optimizer", "server_optimizer"):
        schedule = getattr(config, name).schedule
        if schedule in ("cosine", "linear"):
            return f"{name}.schedule = {schedule} is stretched, and the rate jumps up"
    if METHODS[config.method].counts_rounds:
        return f"{config.method} depends on the number of rounds, which has changed"
    return None


def sections() -> set[str]:
    """Return the names of the methods' sections, whoever registered them."""
    return {strategy.section for strategy in METHODS.values() if strategy.section is not None}


def setting_names(parameters: type[BaseModel]) -> set[str]:
    """Return the names a configuration uses for a model's fields."""
    return {field.alias or name for name, field in parameters.model_fields.items()}


def make_config(values: Mapping[str, Any]) -> Config:
    """Return the configuration with these values, or say in one message all that is wrong with them."""
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(explain(error)) from None


def explain(error: ValidationError, prefix: str = "") -> str:
    """Say what is wrong with a configuration, a line a mistake, with the nearest known setting."""
    lines = []
    for mistake in error.errors():
        path = ".".join([prefix] * bool(prefix) + [str(part) for part in mistake["loc"]])
        if mistake["type"] != "extra_forbidden":
            message = in_words(mistake)
            lines.append(f"{path}: {message} (got {brief(mistake['input'])})" if mistake["loc"] else message)
        elif path == "network":
            lines.append("the section 'network' is for gapsl serve; to train in one process leave it out")
        elif path == "preset":
            lines.append(f"a preset is no setting of its own; use: --preset {brief(mistake['input'])}")
        elif path in OptimizerConfig.model_fields:
            hint = f"; both at once: --lr {mistake['input']}" if path == "lr" else ""
            lines.append(
                f"unknown setting '{path}'; it is device_optimizer.{path} and server_optimizer.{path}{hint}"
            )
        else:
            known = {*Config.model_fields, *sections()} - {"sections"}
            if len(mistake["loc"]) > 1:
                known = set(OptimizerConfig.model_fields)
            lines.append(f"unknown setting '{path}'; {nearest(str(mistake['loc'][-1]), known)}")
    return "\n".join(lines)


def read_yaml(path: Path, read: Callable[[Path, int], bytes] = read_bytes) -> dict[str, Any]:
    """Read a configuration file."""
    try:
        values = yaml.safe_load(read(path, SMALL).decode())
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise InputError(f"{path} is not a readable YAML file: {error.problem}{where}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give a file of settings") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a readable YAML file: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold settings, one 'name: value' per line")
    return values


def presets() -> dict[str, Path]:
    """Return the presets that ship with gapsl, by name."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.yaml"))}


def preset(name: str) -> dict[str, Any]:
    """Return the values of a preset."""
    known = presets()
    if name not in known:
        raise InputError(f"unknown preset {name!r}; {nearest(name, known)}")
    return read_yaml(known[name])


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over each other, later ones winning, section by section."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                merged[key] = merge(merged[key], value)
            else:
                merged[key] = value
    return merged


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by the names that `--set` takes."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def parse_assignment(text: str) -> dict[str, Any]:
    """Read 'section.name=value' as nested settings; the value is YAML."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise InputError(f"--set takes name=value, for example gapsl.eta=0.3, not {text!r}")
    try:
        parsed: Any = yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"--set {text}: the value is not valid YAML: {error}") from None
    if isinstance(parsed, str):
        with suppress(ValueError):  # YAML 1.1 reads 1e-4 as a string, people do not
            parsed = float(parsed)
    for part in reversed(path.strip().split(".")):
        parsed = {part: parsed}
    return dict(parsed)
