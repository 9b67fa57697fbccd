"""When a round closes: with everybody, with enough of them, or when its time is up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gapsl.common.errors import InputError

HOW = "all, fraction:SHARE (0 to 1) or deadline:SECONDS"


@dataclass(frozen=True)
class RoundPolicy:
    """A policy; whatever it is, a round with everybody closes at once, and one with nobody never."""

    name: Literal["all", "fraction", "deadline"] = "all"
    argument: float = 1.0  # the share, or the seconds
    least: int = 1  # devices that a deadline waits for

    @property
    def waits_for_all(self) -> bool:
        """Whether every device is waited for, however long it is away."""
        return self.name == "all"

    @property
    def seconds(self) -> float:
        """How long a round is open before time alone may close it."""
        return self.argument if self.name == "deadline" else math.inf

    def closes(self, asked: int, arrived: int, seconds: float) -> bool:
        """Say whether a round of so many devices closes, with so many arrived after so long."""
        if arrived == asked:
            return True
        if self.name == "fraction":
            return arrived >= max(1, math.ceil(self.argument * asked - 1e-9))
        return self.name == "deadline" and seconds >= self.argument and arrived >= min(self.least, asked)


def parse_round_policy(text: str, *, least: int = 1) -> RoundPolicy:
    """Read a policy as it is written in settings."""
    name, _, argument = text.partition(":")
    try:
        number = float(argument) if argument else 1.0
    except ValueError:
        raise InputError(f"closing {text!r}: {argument!r} is not a number; write {HOW}") from None
    if name == "all" and not argument:
        return RoundPolicy("all")
    if name == "fraction" and argument and 0 < number <= 1:
        return RoundPolicy("fraction", number)
    if name == "deadline" and argument and 0 < number < math.inf:
        return RoundPolicy("deadline", number, least)
    raise InputError(f"unknown closing {text!r}; write {HOW}")
