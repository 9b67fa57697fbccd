"""Which lines are shown: one with the same settings as another is not shown twice."""

from __future__ import annotations

from collections.abc import Iterable

from gapsl.experiments.catalogue import LINES


def same_as(line: str) -> str | None:
    """Return the earlier line with the same settings and the same search of rates, None if there is none."""
    own = LINES[line]
    for other, known in LINES.items():
        if other == line:
            return None
        searched = LINES[known.rates_of].settings == LINES[own.rates_of].settings
        if known.settings == own.settings and searched:
            return other
    return None


def distinct(lines: Iterable[str]) -> list[str]:
    """Return lines without those that are the same as another one of them."""
    listed = list(lines)
    return [line for line in listed if same_as(line) not in listed]
