"""What a diagnosis is made of: findings, how bad each is, and what to try; and numbers in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

NAMED = 5  # more names than this nobody reads


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
    """One thing that a run's records say, with the numbers that say it."""

    name: str  # stable, for programs
    severity: Severity
    title: str
    text: str  # the evidence in plain sentences
    numbers: Mapping[str, Any] = field(default_factory=dict)  # the evidence for programs
    advice: tuple[Advice, ...] = ()
    breaks: bool = False  # the numbers have run away: what else is seen follows from it

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        pieces = [{"name": a.name, "settings": list(a.settings), "effect": a.effect} for a in self.advice]
        words = {name: getattr(self, name) for name in ("name", "title", "text")}
        return {**words, "severity": self.severity.word, "numbers": dict(self.numbers), "advice": pieces}

    def __str__(self) -> str:
        return f"{self.severity.word}: {self.title}. {self.text}"


def percent(share: float) -> str:
    """Return a share in percent, with a decimal only where it is small."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def points(difference: float) -> str:
    """Return a difference of accuracies in points."""
    value = round(100 * difference)
    return f"{value} point{'' if abs(value) == 1 else 's'}"


def times(factor: float) -> str:
    """Return a factor with two digits, in words where it is beyond counting."""
    return f"{factor:,.0f} times" if 100 <= factor < 1e6 else f"{factor:.2g} times"


def listed(names: Sequence[object]) -> str:
    """Return names with commas and an "and", cut short where there are many."""
    words = [str(name) for name in names]
    if len(words) > NAMED + 1:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def classes(names: Sequence[str]) -> str:
    """Return "class 3" or "classes 3, 5 and 8"."""
    return f"class{'' if len(names) == 1 else 'es'} {listed(names)}"
