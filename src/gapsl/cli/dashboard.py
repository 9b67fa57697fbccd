"""`gapsl dashboard`: runs on a live page in the browser."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from gapsl.cli import running
from gapsl.cli.running import errors, say
from gapsl.dashboard.launch import address_of, check_extra, guard, is_local, listen, serve_page

EPILOG = "Example: gapsl dashboard runs/b, then open the address it prints. See docs/dashboard.md."


def dashboard(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN_OR_FOLDER", help="Folders of runs, comparisons or fleets.")
    ],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: 8787, or any if that is taken.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in, with the token.")
    ] = "localhost",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="GAPSL_DASHBOARD_TOKEN",
            help="Secret that visitors must give; made for you beyond localhost.",
        ),
    ] = None,
    data_dir: running.DataDir = None,
    expect: Annotated[bool, typer.Option("--expect", help="The runs may begin later.")] = False,
    beside: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Show running or finished runs on a page in the browser; nothing can be changed there."""
    check_extra()
    if beside is not None:  # a command that trains has started this, and listens already
        opened = socket.socket(fileno=beside)
        serve_page(runs, opened, data_dir=data_dir, expected=True, until=sys.stdin.buffer.read)
        return
    with listen(host, port) as opened:
        token = guard(opened, token)
        if not is_local(opened):
            errors.print(
                "the page is not encrypted; an SSH tunnel to a page on localhost is", highlight=False
            )

        def begun() -> None:
            say(f"{address_of(opened, host, token)}  (Ctrl-C ends the page, not the runs)")

        try:
            serve_page(runs, opened, host=host, token=token, data_dir=data_dir, expected=expect, begun=begun)
        except KeyboardInterrupt:  # the usual end of a page
            raise typer.Exit(128 + signal.SIGINT) from None
