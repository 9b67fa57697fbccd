"""What can go wrong, by whose fault it is: each kind has its exit code."""

from __future__ import annotations


class GapslError(Exception):
    """The base of everything gapsl raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(GapslError, ValueError):
    """What the user gave cannot be used; the message says why and names the fix."""

    exit_code = 2


class TrainingStopped(GapslError):
    """Training cannot go on, for example because every gradient is NaN or infinite."""

    exit_code = 3


class Unavailable(GapslError):
    """What is missing may be there later, with the same input: devices, a network, room on a disk."""

    exit_code = 4


class Rewind(GapslError):
    """Some device has lost what it did since a checkpoint: everybody has to go back to one that all have."""


class Stopped(GapslError):
    """Somebody asked to stop while the run was waiting."""
