"""What the subcommands share: options, error messages and exit codes; nothing that a device lacks."""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from gapsl.common.errors import GapslError, InputError, Unavailable
from gapsl.common.files import NO_ROOM
from gapsl.common.plugins import use_plugins


class Terminal(Console):
    """A console that outlives whoever reads it: training goes on when the pipe or terminal is gone."""

    def on_broken_pipe(self) -> None:
        """Say no more, instead of ending the process."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if self.stderr else 1)


output = Terminal(emoji=False)  # "dirichlet:-1:" is not a thumb
errors = Terminal(stderr=True, emoji=False)

# Of a path that somebody named, wherever it is looked at first.
UNUSABLE_PATH = (
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
)

NO_MEMORY = re.compile("allocate memory|out of memory", re.IGNORECASE)  # in what torch raises
SMALLER = "end other programs, or choose a smaller model, width, input, batch_size or number of devices"

Function = TypeVar("Function", bound=Callable[..., Any])

DataDir = Annotated[
    str | None, typer.Option(help="Where data files are, and are downloaded to. Also: $GAPSL_DATA.")
]
Devices = Annotated[int | None, typer.Option(help="Number of devices.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds to train.")]
Processes = Annotated[
    str | None,
    typer.Option(help="Processes that compute devices side by side; auto: one per core."),
]
FleetKind = Annotated[
    str | None, typer.Option(help="Where these processes are: local, or ray: actors of a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option("--address", help="A Ray cluster: HOST:PORT or auto; default: one is started here."),
]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda or mps.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A YAML file with settings.")]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings that belong together: recommended, paper-cifar10-vgg16 or paper-cifar100-vit."
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. gapsl.eta=0.3; may be repeated."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; default: one per core, on a GPU one.")
]
Plots = Annotated[bool, typer.Option("--plots", help="Draw curves, labels, angles and confusion.")]
PlotFormat = Annotated[str, typer.Option(help="Kinds of pictures, separated by commas: png, svg, pdf.")]


def loaded(names: list[str] | None) -> list[str] | None:
    """Load the plugins that an option names, before anything asks for what they bring."""
    try:
        use_plugins(names or ())
    except GapslError as error:
        raise typer.BadParameter(str(error)) from None
    return names


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE_OR_MODULE",
        callback=loaded,
        is_eager=True,
        help="Your own methods, models, datasets or observers; may be repeated. It runs, so trust it.",
    ),
]
LivePage = Annotated[bool, typer.Option("--dashboard", help="Show it on a live page in the browser, too.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.")]


def guarded(function: Function) -> Function:
    """Turn what gapsl raises on purpose into a message and an exit code."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except GapslError as error:
            conclude(str(error), logging.ERROR)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            if error.errno not in (*UNUSABLE_PATH, *NO_ROOM):
                raise
            full = error.errno in NO_ROOM
            way_out = "make room, and try again" if full else "check the path"
            named = f"{error.filename}: " if error.filename is not None else ""
            conclude(f"{named}{error.strerror}; {way_out}", logging.ERROR)
            raise typer.Exit((Unavailable if full else InputError).exit_code) from None
        except (MemoryError, RuntimeError) as error:  # torch has an error of its own on a GPU alone
            if not isinstance(error, MemoryError) and not NO_MEMORY.search(str(error)):
                raise
            conclude(f"there is not enough memory: {SMALLER}", logging.ERROR)
            raise typer.Exit(Unavailable.exit_code) from None
        except KeyboardInterrupt as error:
            conclude("stopped at once; a run goes on from its last checkpoint", logging.INFO)
            raise typer.Exit(128 + (error.args[0] if error.args else signal.SIGINT)) from None

    return wrapped  # type: ignore[return-value]


def say(text: str) -> None:
    """Print a line as it is."""
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def complain(text: str) -> None:
    """Print what went wrong as it is."""
    errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def conclude(text: str, level: int) -> None:
    """Say how a command ends, in the log where there is one for machines."""
    log = logging.getLogger("gapsl")
    if any(getattr(handler.formatter, "for_machines", False) for handler in log.handlers):
        log.log(level, text)
    elif level == logging.ERROR:
        complain(f"error: {text}")
    else:
        errors.print(text, markup=False, highlight=False)


def asked_to_stop() -> None:
    """Say what happens after the first Ctrl-C."""
    errors.print(
        "finishing this round, with its evaluation if one is due, and writing a checkpoint (Ctrl-C again: at "
        "once)",
        highlight=False,
        soft_wrap=True,
    )
