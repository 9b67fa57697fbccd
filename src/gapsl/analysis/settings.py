"""Every setting with its default and meaning, for people: `gapsl settings` and docs/configuration.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gapsl.methods.base import Strategy
from gapsl.methods.registry import METHODS
from gapsl.network.protocol.settings import Network
from gapsl.run.config import Config


@dataclass(frozen=True)
class SettingInfo:
    """One setting: its name for --set, its default, what it may be, and what it means."""

    name: str
    default: str
    choices: tuple[str, ...]
    meaning: str


def all_settings() -> dict[str, list[SettingInfo]]:
    """Return the settings by group: the run's own, the methods' sections, and the network's."""
    groups = {"run": [info for info in _fields(Config) if info.name != "sections"]}
    for strategy in METHODS.values():
        if strategy.section is not None:
            known = groups.setdefault(strategy.section, [])
            names = {info.name for info in known}
            known.extend(info for info in settings_of(strategy) if info.name not in names)
    groups["network"] = list(_fields(Network, "network."))
    return groups


def settings_of(strategy: type[Strategy]) -> list[SettingInfo]:
    """Return a method's own settings."""
    return list(_fields(strategy.parameters, f"{strategy.section}."))


INTRODUCTION = """# All settings

They go into a YAML file (`--config`), into `--set name=value`, or as words to `gapsl.train`; those with an
option of their own (`gapsl train --help`) may be given as one. Later ones win: preset, file, options,
`--set`.
A misspelt name is an error. This page is `python -m gapsl.analysis.settings > docs/configuration.md`.
"""


def settings_markdown() -> str:
    """Return docs/configuration.md."""
    lines = [INTRODUCTION]
    for group, infos in all_settings().items():
        lines += [f"## {'The run' if group == 'run' else f'Section `{group}`'}", ""]
        lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
        for info in infos:
            choices = f" One of: {', '.join(f'`{c}`' for c in info.choices)}." if info.choices else ""
            lines.append(f"| `{info.name}` | `{info.default}` | {info.meaning}.{choices} |")
        lines.append("")
    return "\n".join(lines)


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[SettingInfo]:
    for key, field in model.model_fields.items():
        name = prefix + (field.alias or key)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{name}.")
        else:
            yield SettingInfo(name, _default(field), _choices(field), field.description or "")


def _default(field: FieldInfo) -> str:
    if field.default in (None, (), ""):
        return "unset"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _choices(field: FieldInfo) -> tuple[str, ...]:
    found: list[Any] = list(get_args(field.annotation))
    return tuple(choice for choice in found if isinstance(choice, str))


if __name__ == "__main__":
    print(settings_markdown(), end="")
