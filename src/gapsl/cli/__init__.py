"""The command line: one file a subcommand, thin."""

from gapsl.cli.main import main

__all__ = ["main"]
