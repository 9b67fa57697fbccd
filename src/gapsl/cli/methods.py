"""`gapsl methods`: what can be trained, and with which settings."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo

from gapsl.cli.running import output
from gapsl.strategies.base import Strategy
from gapsl.strategies.registry import METHODS
from gapsl.training.config import Config

SHARED = ("reduction", "device_gradient")


def methods(name: Annotated[str | None, typer.Argument(help="Only this method.")] = None) -> None:
    """List the methods with a line each and their settings (for --set)."""
    chosen = [METHODS.canonical(name)] if name is not None else list(METHODS)
    told: set[str] = set()
    for method in chosen:
        strategy = METHODS[method]
        output.print(f"[bold]{method}[/bold]  {strategy.summary}", highlight=False, soft_wrap=True)
        for path, text in parameters_of(strategy).items():
            if path not in told or name is not None:
                output.print(f"    {path:<18} {text}", highlight=False, markup=False, soft_wrap=True)
                told.add(path)
    output.print("\nfor psl, epsl and gapsl alike:", highlight=False)
    for field in SHARED:
        text = describe(Config.model_fields[field])
        output.print(f"    {field:<18} {text}", highlight=False, markup=False, soft_wrap=True)


def parameters_of(strategy: type[Strategy]) -> dict[str, str]:
    """Return a method's settings by name, each described in a line."""
    fields = strategy.parameters.model_fields
    return {f"{strategy.section}.{field.alias or key}": describe(field) for key, field in fields.items()}


def describe(field: FieldInfo) -> str:
    """Return a setting's meaning, choices and default in a line."""
    choices: list[Any] = [c for c in get_args(field.annotation) if isinstance(c, str)]
    which = f" ({', '.join(choices)})" if choices else ""
    default = "unset" if field.default is None else field.default
    return f"{field.description}{which} [{default}]"
