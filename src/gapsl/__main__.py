"""Lets `python -m gapsl` do what `gapsl` does."""

from gapsl.cli import main

main()
