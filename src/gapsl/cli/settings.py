"""`gapsl settings`: everything that can be set, and how a command's options set it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapsl.analysis.settings import all_settings
from gapsl.cli.methods import tell
from gapsl.cli.running import output
from gapsl.run.api import compose
from gapsl.run.config import Config, merge, parse_assignment


def settings() -> None:
    """List all settings with meaning and default, for a configuration file or --set."""
    for group, infos in all_settings().items():
        output.print(f"[bold]{group}[/bold]", highlight=False)
        for info in infos:
            tell(info, width=28)


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
