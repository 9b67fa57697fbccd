"""`gapsl settings`: everything that can be set, and how a command's options set it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gapsl.analysis.settings import SettingInfo, all_settings
from gapsl.cli.methods import tell
from gapsl.cli.running import output
from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.run.api import compose
from gapsl.run.config import Config, merge, parse_assignment


def settings(
    name: Annotated[str | None, typer.Argument(help="Only this setting, or this section.")] = None,
) -> None:
    """List all settings, or one, with meaning and default, for a configuration file or --set."""
    groups = all_settings()
    if name is not None:
        chosen = {group: [info for info in infos if is_called(info, name)] for group, infos in groups.items()}
        known = {info.name for infos in groups.values() for info in infos}
        groups = {group: infos for group, infos in chosen.items() if infos}
        if not groups:
            raise InputError(f"unknown setting {name!r}; {nearest(name, known)}")
    for group, infos in groups.items():
        output.print(f"[bold]{group}[/bold]", highlight=False)
        for info in infos:
            tell(info, width=28)


def is_called(info: SettingInfo, name: str) -> bool:
    """Say whether a setting has this name, with its section or without, or is in a section of this name."""
    return name in (info.name, info.name.rpartition(".")[2]) or info.name.startswith(f"{name}.")


def chosen_settings(
    config: Path | None, preset: str | None, set_: Sequence[str] | None, **options: Any
) -> Config:
    """Compose a configuration: preset, then file, then those options that are settings, then --set."""
    known = Config.model_fields
    given = {name: value for name, value in options.items() if name in known and value is not None}
    if (rate := options.get("lr")) is not None:
        given |= {"device_optimizer": {"lr": rate}, "server_optimizer": {"lr": rate}}
    words = merge(given, *(parse_assignment(text) for text in set_ or []))
    return compose(config, preset_name=preset, words=words)
