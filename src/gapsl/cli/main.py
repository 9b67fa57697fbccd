"""The `gapsl` command and what all subcommands share: exit codes and error messages."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

import gapsl
from gapsl.cli import (
    certs,
    compare,
    data,
    diagnose,
    fleet,
    join,
    methods,
    model,
    parameter_server,
    replay,
    resume,
    serve,
    settings,
    show,
    train,
)
from gapsl.cli.running import guarded

EPILOG = (
    "Exit codes: 0 done, 1 a bug of ours, 2 bad input, 3 training stopped (no finite gradients), 130 Ctrl-C, "
    "143 SIGTERM."
)

app = typer.Typer(
    name="gapsl",
    help="Parallel split learning on devices whose data differ: train GAPSL and its rivals, compare them.",
    epilog=EPILOG,
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


app.command("train", epilog=train.EPILOG)(guarded(train.train))
app.command("compare", epilog=compare.EPILOG)(guarded(compare.compare))
app.command("resume")(guarded(resume.resume))
app.command("show")(guarded(show.show))
app.command("diagnose")(guarded(diagnose.diagnose_runs))
app.command("methods")(guarded(methods.methods))
app.command("settings")(guarded(settings.settings))
app.command("model", epilog=model.EPILOG)(guarded(model.model))
app.command("serve", epilog=serve.EPILOG)(guarded(serve.serve))
app.command("join", epilog=join.EPILOG)(guarded(join.join))
app.command("parameter-server", epilog=parameter_server.EPILOG)(guarded(parameter_server.parameter_server))
app.command("replay")(guarded(replay.replay))
app.add_typer(data.app, name="data")
app.add_typer(certs.app, name="certs")
app.add_typer(fleet.app, name="fleet")
for command in entry_points(group="gapsl.commands"):  # added by other packages, as the reproduction
    found = command.load()
    app.command(command.name, epilog=getattr(found, "epilog", None))(guarded(found))


def main() -> None:
    """Run the command line."""
    app()
