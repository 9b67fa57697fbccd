"""`gapsl methods`: what can be trained, and with which settings."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer
from rich.text import Text

from gapsl.analysis.settings import SettingInfo, all_settings, settings_of
from gapsl.cli import running
from gapsl.cli.running import output
from gapsl.methods.registry import METHODS

SHARED = ("reduction", "device_gradient")


def methods(
    name: Annotated[str | None, typer.Argument(help="Only this method.")] = None,
    plugin: running.Plugins = None,
) -> None:
    """List the methods with a line each and their settings (for --set)."""
    told: set[str] = set()
    for method in [METHODS.canonical(name)] if name is not None else METHODS:
        tell_hanging(f"{method}  ", METHODS[method].summary, style="bold", hang=4)
        for info in settings_of(METHODS[method]):
            if info.name not in told:  # the ablations read GAPSL's settings too
                tell(info)
                told.add(info.name)
    output.print("\nfor psl, epsl and gapsl alike:", highlight=False)
    for info in all_settings()["run"]:
        if info.name in SHARED:
            tell(info)


def tell(info: SettingInfo, width: int = 18) -> None:
    """Print a setting."""
    choices = f" ({', '.join(info.choices)})" if info.choices else ""
    tell_hanging(f"    {info.name:<{width}} ", f"{info.meaning}{choices} [{info.default}]")


def tell_hanging(name: str, text: str, *, style: str = "", hang: int | None = None) -> None:
    """Print a name and a text whose further lines hang below its first; one line where nobody reads it."""
    indent = " " * (len(name) if hang is None else hang)
    lines = [name + text]
    if output.is_terminal:
        lines = textwrap.wrap(name + text, output.width, subsequent_indent=indent, break_on_hyphens=False)
    shown = Text("\n".join(lines))
    shown.stylize(style, 0, len(name))
    output.print(shown, soft_wrap=True)
