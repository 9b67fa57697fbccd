"""The reference of the command line, made from the commands themselves when the site is built."""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from gapsl.cli.main import COMMANDS, load

WORDS = {Path: "PATH", int: "N", float: "NUMBER"}


def commands() -> str:
    """Return every command with its arguments and options, as its --help has them."""
    loaded = ((f"gapsl {name}", load(name, place)) for name, place in COMMANDS.items())
    return "\n".join(line for path, command in loaded for line in described(command, path, 2))


def described(command: Any, path: str, level: int) -> Iterator[str]:
    """Yield a command as Markdown, with those below it."""
    yield f"{'#' * level} {path}\n"
    yield f"{plain(command.help or '')}\n"
    below = getattr(command, "commands", {})
    if not below:
        yield from usage(command, path)
    if command.epilog:
        yield f"{plain(command.epilog)}\n"
    for name, inner in below.items():
        yield from described(inner, f"{path} {name}", level + 1)


def usage(command: Any, path: str) -> Iterator[str]:
    """Yield how a command is called, and a list of what it takes."""
    params = [param for param in command.get_params(typer.Context(command)) if param.name != "help"]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param not in arguments]
    yield f"```text\n{' '.join([path, *map(called, arguments), *['[OPTIONS]'] * bool(options)])}\n```\n"
    yield from (f"`{called(param)}`\n: {meaning(param)}\n" for param in arguments)
    yield from (f"{names(param)}\n: {meaning(param)}\n" for param in options)


def called(argument: Any) -> str:
    """Return how an argument stands in the usage of its command."""
    word = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def names(option: Any) -> str:
    """Return the names of an option with what it takes."""
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    takes = "" if option.is_flag else f" {option.metavar or WORDS.get(kind, 'VALUE')}"
    return ", ".join(f"`{name}{takes}`" for name in (*option.opts, *option.secondary_opts))


def meaning(param: Any) -> str:
    """Return what an argument or option is for, with its default."""
    text = plain(param.help or "").replace("\n", " ")
    default = param.default
    if isinstance(default, Enum):
        text += f" One of: {', '.join(f'`{choice.value}`' for choice in type(default))}."
        default = default.value
    if param.required and param.param_type_name == "option":
        text += " Required."
    unset = callable(default) or default in (None, False, "", ())
    return text if unset or "default:" in text.lower() else f"{text} Default: `{default}`."


def plain(text: str) -> str:
    """Return help as Markdown; a page that it names is a link."""
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](\1.md)", text)
