"""`gapsl methods`: what can be trained, with which settings, and which options go with it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from gapsl.analysis.settings import SettingInfo, all_settings, settings_of
from gapsl.cli import running
from gapsl.cli.running import output
from gapsl.methods.registry import METHODS
from gapsl.options.compatibility import LEGEND, TABLE, goes_with
from gapsl.run.config import flat

SHARED = ("reduction", "device_gradient")


def methods(
    name: Annotated[str | None, typer.Argument(help="Only this method.")] = None,
    plugin: running.Plugins = None,
) -> None:
    """List the methods: what each is, its settings (for --set), and the options that go with it."""
    chosen = [METHODS.canonical(name)] if name is not None else list(METHODS)
    told: set[str] = set()
    for method in chosen:
        tell_hanging(f"{method}  ", METHODS[method].summary, style="bold", hang=4)
        laid = flat(METHODS[method].defaults)
        if laid:
            words = ", ".join(f"{setting}={value}" for setting, value in laid.items())
            tell_hanging("    its defaults: ", words, hang=6)
        for info in settings_of(METHODS[method]):
            if info.name not in told:  # the ablations read GAPSL's settings too
                tell(info)
                told.add(info.name)
    output.print("\nfor psl, papsl, epsl and gapsl alike:", highlight=False)
    for info in all_settings()["run"]:
        if info.name in SHARED:
            tell(info)
    output.print("\nwhich options go with it (gapsl settings says what they are):", highlight=False)
    tell_table(chosen)


def tell_table(names: Iterable[str]) -> None:
    """Print which options go with which method."""
    rows = [["method", *(column.partition("=")[0] for column in TABLE)]]
    rows += [[name, *goes_with(METHODS[name]).values()] for name in names]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        output.print(line.rstrip(), highlight=False, soft_wrap=True)
    for word, meaning in {"labels": "labels=device", **LEGEND}.items():
        if any(word in row for row in rows):
            tell_hanging(f"  {word}: ", meaning.replace("`", ""), hang=4)


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
