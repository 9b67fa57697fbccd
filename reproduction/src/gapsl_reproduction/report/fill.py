"""What is in a panel, drawn: lines, bars, rows and dots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapsl_reproduction.report.panels import Bars, Curve, Dots, Lines, Panel, Rows
from gapsl_reproduction.report.spread import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TINY, SMALL = 7.5, 8.5  # points
GREY = "#666666"
ASIDE = 0.02  # between the curves at a point of a sweep, whose points are 1 apart


def is_mixed(panel: Panel) -> bool:
    """Say whether some of what a panel shows has one seed, and some more."""
    counts = {each.seeds for each in panel.estimates}
    return not isinstance(panel, Dots) and 1 in counts and len(counts) > 1


def fill(panel: Panel, axes: Axes) -> None:
    """Draw what a panel shows."""
    match panel:
        case Lines():
            lines(panel, axes)
        case Bars():
            bars(panel, axes)
        case Rows():
            rows(panel, axes)
        case Dots():
            dots(panel, axes)


def lines(panel: Lines, axes: Axes) -> None:
    """Draw curves, with bands where they go on and bars where their points are apart."""
    mixed = is_mixed(panel)
    middle = (len(panel.curves) - 1) / 2
    for index, curve in enumerate(panel.curves):
        # Side by side, or error bars would hide each other.
        shift = 0.0 if panel.ticks is None else ASIDE * (index - middle)
        line(axes, curve, shift, bands=panel.ticks is None, mixed=mixed)
    if panel.level is not None:
        label, look, level = panel.level
        axes.axhline(level.mean, color=look.colour, linestyle="--", linewidth=1.5, label=label)
        if level.std is not None:
            axes.axhspan(level.mean - level.std, level.mean + level.std, color=look.colour, alpha=0.12, lw=0)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.ticks is not None:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        low, high = min(panel.ticks), max(panel.ticks)
        room = 0.08 * ((high - low) or 1.0) + ASIDE * middle
        axes.set_xlim(low - room, high + room)
    else:
        axes.set_xlim(left=0)


def line(axes: Axes, curve: Curve, shift: float, *, bands: bool, mixed: bool) -> None:
    """Draw one curve."""
    look = curve.look
    x = [value + shift for value in curve.x]
    mean = [each.mean for each in curve.y]
    std = [each.std or 0.0 for each in curve.y]
    hollow = mixed and all(each.seeds == 1 for each in curve.y)
    axes.plot(
        x,
        mean,
        color=look.colour,
        marker=look.marker,
        linestyle=look.dashes,
        markerfacecolor="white" if hollow else look.colour,
        markersize=6 if look.marker == "*" else 4,
        linewidth=1.5,
        label=curve.label,
    )
    if not any(std):
        return
    if bands:
        low = [m - s for m, s in zip(mean, std, strict=True)]
        high = [m + s for m, s in zip(mean, std, strict=True)]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.14, linewidth=0)
    else:
        axes.errorbar(x, mean, std, color=look.colour, linestyle="none", elinewidth=1, capsize=2)


def bars(panel: Bars, axes: Axes) -> None:
    """Draw groups of bars."""
    mixed = is_mixed(panel)
    shown = [series for series in panel.series if any(value is not None for value in series.values)]
    # In a group where only one of them is, a bar stands in the middle.
    together = any(sum(s.values[i] is not None for s in shown) > 1 for i in range(len(panel.groups)))
    width = 0.8 / (len(shown) if together else 1)
    for index, series in enumerate(shown):
        offset = (index - (len(shown) - 1) / 2) * width if together else 0.0
        for group, value in enumerate(series.values):
            if value is not None:
                label = series.label if group == first(series.values) and len(shown) > 1 else None
                bar(axes, group + offset, value, width, series.look.colour, label, mixed=mixed)
    if panel.level is not None:
        axes.axhline(panel.level[1], color=GREY, linestyle=":", linewidth=1, label=panel.level[0])
    axes.set_xticks(range(len(panel.groups)), list(panel.groups))
    axes.set_xlim(-0.5, len(panel.groups) - 0.5)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(visible=False, axis="x")


def first(values: Sequence[Estimate | None]) -> int:
    """Return the index of the first value that is there."""
    return next(index for index, value in enumerate(values) if value is not None)


def bar(
    axes: Axes, x: float, value: Estimate, width: float, colour: str, label: str | None, *, mixed: bool
) -> None:
    """Draw one bar, hollow if it is the only one with one seed."""
    hollow = mixed and value.seeds == 1
    axes.bar(
        x,
        value.mean,
        width * 0.92,
        yerr=value.std,
        color="white" if hollow else colour,
        edgecolor=colour,
        linewidth=1.2 if hollow else 0.0,
        label=label,
        error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#333333"},
    )
    if value.mean == 0:  # or it could not be told from one that is missing
        axes.text(x, 0, "0", ha="center", va="bottom", fontsize=SMALL, color=colour)


def rows(panel: Rows, axes: Axes) -> None:
    """Draw a value a row, and a line at the reference."""
    if panel.reference is not None:
        axes.axvline(panel.reference.mean, color=GREY, linewidth=1, linestyle="--")
    for y, value in enumerate(panel.rows.values()):
        axes.errorbar(
            value.mean, y, xerr=value.std, color=panel.look.colour, marker="o", markersize=5, capsize=2
        )
        axes.annotate(
            f"{value.mean:.1f}",
            (value.mean, y),
            (6, 4),
            textcoords="offset points",
            fontsize=TINY,
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},  # or the reference strikes it out
        )
    axes.set_yticks(range(len(panel.rows)), list(panel.rows))
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(xlabel=panel.x_label)


def dots(panel: Dots, axes: Axes) -> None:
    """Draw a dot a run."""
    for (label, look), points in panel.dots.items():
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=26,
            color=look.colour,
            marker=look.marker,
            label=label,
        )
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
