"""Ctrl-C and SIGTERM as a question the training loop asks after every round."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupt:
    """While active, the first signal is remembered and the second stops the process at once."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self.signal: int | None = None
        self._on_first = on_first
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether somebody asked to stop."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What the shell expects of a process ended by that signal: 130 for Ctrl-C."""
        return 128 + (self.signal or signal.SIGINT)

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        # Once a stop was asked for and done, the process only has to say so and leave.
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.asked else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt(number)
        self.signal = number
        self._on_first()
