"""What a figure shows, as data: panels of lines, bars, rows or dots. Drawing them is another matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gapsl_reproduction.report.looks import Look
from gapsl_reproduction.report.spread import Estimate


@dataclass(frozen=True)
class Curve:
    """One line: a mean with its spread at every x."""

    label: str
    look: Look
    x: Sequence[float]
    y: Sequence[Estimate]


@dataclass(frozen=True)
class Lines:
    """Curves over a common axis."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    ticks: Mapping[float, str] | None = None  # names of places on the x axis, where it has no scale
    level: tuple[str, Look, Estimate] | None = None  # what the others are measured against
    missing: Sequence[str] = ()

    @property
    def estimates(self) -> list[Estimate]:
        """Everything that is shown."""
        return [each for curve in self.curves for each in curve.y] + ([self.level[2]] if self.level else [])


@dataclass(frozen=True)
class Series:
    """Bars of one look, one in every group."""

    label: str
    look: Look
    values: Sequence[Estimate | None]


@dataclass(frozen=True)
class Bars:
    """Groups of bars."""

    title: str
    y_label: str
    groups: Sequence[str]
    series: Sequence[Series]
    x_label: str = ""
    missing: Sequence[str] = ()
    level: tuple[str, float] | None = None  # what is to be had for nothing

    @property
    def estimates(self) -> list[Estimate]:
        """Everything that is shown."""
        return [value for series in self.series for value in series.values if value is not None]


@dataclass(frozen=True)
class Rows:
    """Names with a value each, from top to bottom, against a reference."""

    title: str
    x_label: str
    rows: Mapping[str, Estimate]
    reference: Estimate | None
    look: Look
    missing: Sequence[str] = ()

    @property
    def estimates(self) -> list[Estimate]:
        """Everything that is shown."""
        return list(self.rows.values())


@dataclass(frozen=True)
class Dots:
    """Single runs or devices by two of their numbers."""

    title: str
    x_label: str
    y_label: str
    dots: Mapping[tuple[str, Look], Sequence[tuple[float, float]]]  # by label and look
    missing: Sequence[str] = ()

    @property
    def estimates(self) -> list[Estimate]:
        """Everything that is shown, each for itself."""
        return [Estimate(y, None, 1) for dots in self.dots.values() for _, y in dots]


Panel = Lines | Bars | Rows | Dots


@dataclass(frozen=True)
class Picture:
    """A figure: its panels, and what it says beyond them."""

    panels: Sequence[Panel]
    columns: int = 2
    says: str = field(default="", kw_only=True)  # what to know when looking at it
    height: float = field(default=3.1, kw_only=True)  # of a row of panels, in inches

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(panel.estimates for panel in self.panels)

    @property
    def missing(self) -> list[str]:
        """What is not there yet, by panel."""
        found = []
        for panel in self.panels:
            what = ", ".join(panel.missing) if panel.estimates else "everything"
            if panel.missing or not panel.estimates:
                found.append(f"{panel.title}: {what}" if len(self.panels) > 1 else what)
        return found
