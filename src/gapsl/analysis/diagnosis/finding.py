"""What a diagnosis is made of: findings, how bad each is, and what to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """How much a finding asks for: nothing, an eye on it, or a change."""

    INFO = 0
    WATCH = 1
    TROUBLE = 2

    @property
    def word(self) -> str:
        """Its name in print."""
        return self.name.lower()


@dataclass(frozen=True)
class Advice:
    """What to try, and what it would do."""

    name: str  # a setting as `--set` takes it, or what several of them are called
    effect: str
    several: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings, each as `--set` takes it."""
        return self.several or (self.name,)


@dataclass(frozen=True)
class Finding:
    """One thing that a run's files say, with the numbers that say it."""

    name: str  # stable, for programs
    severity: Severity
    title: str
    text: str  # the evidence in plain words
    numbers: Mapping[str, Any] = field(default_factory=dict)  # the evidence for programs
    advice: tuple[Advice, ...] = ()
    breaks: bool = False  # the numbers have run away: what else is seen follows from it
