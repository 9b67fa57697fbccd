"""The `gapsl` command: finds the subcommand that is called and loads no other."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import gapsl
from gapsl.cli.running import guarded

COMMANDS = {  # a function, or a typer.Typer with functions of its own
    "train": "gapsl.cli.train:train",
    "compare": "gapsl.cli.compare:compare",
    "resume": "gapsl.cli.resume:resume",
    "status": "gapsl.cli.status:status",
    "show": "gapsl.cli.show:show",
    "dashboard": "gapsl.cli.dashboard:dashboard",
    "report": "gapsl.cli.report:report",
    "diagnose": "gapsl.cli.diagnose:diagnose_runs",
    "methods": "gapsl.cli.methods:methods",
    "settings": "gapsl.cli.settings:settings",
    "export": "gapsl.cli.export:export",
    "predict": "gapsl.cli.predict:predict",
    "serve-model": "gapsl.cli.serve_model:serve_model",
    "model": "gapsl.cli.model:model",
    "serve": "gapsl.cli.serve:serve",
    "join": "gapsl.cli.join:join",
    "parameter-server": "gapsl.cli.parameter_server:parameter_server",
    "replay": "gapsl.cli.replay:replay",
    "data": "gapsl.cli.data:app",
    "certs": "gapsl.cli.certs:app",
    "fleet": "gapsl.cli.fleet:app",
}


def load(name: str, place: str) -> Any:
    """Import a subcommand, with its module's EPILOG, and with exit codes for errors."""
    module, _, attribute = place.partition(":")
    imported = import_module(module)
    found = getattr(imported, attribute)
    holder = typer.Typer(rich_markup_mode="rich")
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name, epilog=getattr(imported, "EPILOG", None))(guarded(found))
    return flags_without_type(typer.main.get_group(holder).commands[name])


def flags_without_type(command: Any) -> Any:
    """Return a command whose help shows `--quiet`, not `--quiet <bool>`, as if it took a value."""
    for option in command.get_params(typer.Context(command)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        flags_without_type(inner)
    return command


def summary(place: str) -> str:
    """Return a subcommand's help as its source has it, without importing it."""
    module, _, attribute = place.partition(":")
    try:
        source = find_spec(module).loader.get_source(module)  # type: ignore[union-attr]
    except (ImportError, AttributeError):  # another package's command that is broken, or not in Python
        return ""
    for node in ast.parse(source or "").body:
        match node:
            case ast.FunctionDef(name=name) if name == attribute:
                return ast.get_docstring(node) or ""
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if name == attribute:
                given = {word.arg: word.value for word in call.keywords}
                return cleandoc(ast.literal_eval(given["help"]))
    return ""


class LazyGroup(TyperGroup):
    """The subcommands by name. Help is shown from their sources; only the one that is called is imported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.places = COMMANDS | {found.name: found.value for found in entry_points(group="gapsl.commands")}
        self.commands = dict.fromkeys(self.places, TyperCommand(None))  # typer suggests the nearest name

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return what help needs to know of a subcommand."""
        return TyperCommand(name, help=summary(self.places[name])) if name in self.places else None

    def get_params(self, ctx: Any) -> Any:
        """Return the options that come before a subcommand."""
        found = super().get_params(ctx)
        for option in found:
            option.metavar = ""  # flags, all of them
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand that is called, and what is left for it."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load(str(name), self.places[str(name)]), rest


app = typer.Typer(
    name="gapsl",
    cls=LazyGroup,
    help="Parallel split learning on devices whose data differ: train GAPSL and its rivals, compare them.",
    epilog="Exit codes: 0 done, 1 internal error, 2 bad input, 3 training stopped (most devices failed), "
    "4 outage (nobody there, port in use, disk full: try again later), 130 Ctrl-C, 143 SIGTERM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)


def version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        typer.echo(f"gapsl {gapsl.__version__}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before a subcommand."""


def main() -> None:
    """Run the command line."""
    app()
