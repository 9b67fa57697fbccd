"""`gapsl methods`: what can be trained, and with which settings."""

from __future__ import annotations

from typing import Annotated

import typer

from gapsl.cli.running import output
from gapsl.reports.settings import SettingInfo, all_settings, settings_of
from gapsl.strategies.registry import METHODS

SHARED = ("reduction", "device_gradient")


def methods(name: Annotated[str | None, typer.Argument(help="Only this method.")] = None) -> None:
    """List the methods with a line each and their settings (for --set)."""
    told: set[str] = set()
    for method in [METHODS.canonical(name)] if name is not None else METHODS:
        output.print(f"[bold]{method}[/bold]  {METHODS[method].summary}", highlight=False, soft_wrap=True)
        for info in settings_of(METHODS[method]):
            if info.name not in told:  # the ablations read GAPSL's settings too
                tell(info)
                told.add(info.name)
    output.print("\nfor psl, epsl and gapsl alike:", highlight=False)
    for info in all_settings()["run"]:
        if info.name in SHARED:
            tell(info)


def tell(info: SettingInfo, width: int = 18) -> None:
    """Print a setting in a line."""
    choices = f" ({', '.join(info.choices)})" if info.choices else ""
    line = f"    {info.name:<{width}} {info.meaning}{choices} [{info.default}]"
    output.print(line, highlight=False, markup=False, soft_wrap=True)
