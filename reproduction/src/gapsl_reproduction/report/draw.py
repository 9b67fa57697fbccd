"""Figures drawn with matplotlib: panels side by side, one legend above them, what is missing below."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapsl.analysis.plots import figure
from gapsl_reproduction.report.fill import GREY, SMALL, TINY, fill, is_mixed
from gapsl_reproduction.report.naming import seeds_name
from gapsl_reproduction.report.panels import Bars, Dots, Lines, Panel, Picture

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.0  # inches; with 150 dots an inch, readable at 800 pixels
NOTE_WIDTH = 125  # letters of a note's line
LEGEND_WIDTH = 105  # letters in a line of the legend
SYMBOL = 6  # letters that a symbol in it is worth


def draw(picture: Picture) -> Figure:
    """Return a figure as matplotlib has it."""
    columns = min(picture.columns, len(picture.panels))
    rows = math.ceil(len(picture.panels) / columns)
    labels = list({label: None for panel in picture.panels for label in labels_of(panel)})
    note = note_of(picture)
    lines_above = math.ceil(len(labels) / legend_columns(labels)) if labels else 0
    extra = 0.22 * lines_above + 0.13 * len(note)
    drawn = figure(WIDTH, rows * picture.height + extra)
    grid = drawn.subplots(rows, columns, squeeze=False)
    places = [axes for row in grid for axes in row]
    for axes, panel in zip(places, picture.panels, strict=False):
        prepare(axes, panel, narrow=columns > 2)
        if panel.estimates:
            fill(panel, axes)
        else:
            axes.text(0.5, 0.5, "not measured yet", transform=axes.transAxes, ha="center", color=GREY)
            axes.set(xticks=[], yticks=[])
    for axes in places[len(picture.panels) :]:
        axes.set_visible(False)
    legend(drawn, places, mixed=any(is_mixed(panel) for panel in picture.panels))
    if note:
        drawn.supxlabel("\n".join(note), fontsize=TINY, color=GREY)
    return drawn


def prepare(axes: Axes, panel: Panel, *, narrow: bool) -> None:
    """Give a panel its title and the quiet look that all have."""
    between = "\n" if narrow else " "
    seeds = f"{between}({seeds_of(panel)})" if panel.estimates else ""
    axes.set_title(panel.title + seeds, fontsize=9.5)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.label.set_fontsize(SMALL)
    axes.yaxis.label.set_fontsize(SMALL)


def note_of(picture: Picture) -> list[str]:
    """Return the lines that say what is missing."""
    if not picture.missing:
        return []
    return textwrap.wrap(f"not there yet: {'; '.join(picture.missing)}", NOTE_WIDTH, max_lines=3)


def legend(drawn: Figure, places: list[Axes], *, mixed: bool) -> None:
    """Put one legend above all panels, where it covers nothing."""
    found: dict[str, Artist] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if mixed and found:
        (hollow,) = places[0].plot([], [], "o", color=GREY, markerfacecolor="white", markersize=4.5)
        found["hollow: 1 seed"] = hollow
    if len(found) < 2:
        return
    labels = in_rows(list(found), legend_columns(list(found)))
    drawn.legend(
        [found[label] for label in labels],
        labels,
        loc="outside upper center",
        ncols=legend_columns(labels),
        frameon=False,
        fontsize=SMALL,
        handlelength=1.8,
        columnspacing=1.4,
    )


def legend_columns(labels: Sequence[str]) -> int:
    """Return how many columns of labels fit, in rows as equal as can be."""
    fitting = max(2, LEGEND_WIDTH // (max(map(len, labels)) + SYMBOL))
    return math.ceil(len(labels) / math.ceil(len(labels) / fitting))


def in_rows(labels: Sequence[str], columns: int) -> list[str]:
    """Return labels in an order that reads along the rows of a legend, which is filled by columns."""
    return [label for column in range(columns) for label in labels[column::columns]]


def labels_of(panel: Panel) -> list[str]:
    """Return what a panel adds to the legend."""
    if isinstance(panel, Lines):
        return [curve.label for curve in panel.curves] + ([panel.level[0]] if panel.level else [])
    if isinstance(panel, Bars):
        return [series.label for series in panel.series] + ([panel.level[0]] if panel.level else [])
    return [label for label, _ in panel.dots] if isinstance(panel, Dots) else []


def seeds_of(panel: Panel) -> str:
    """Return how many seeds a panel shows."""
    if isinstance(panel, Dots):
        return f"{len(panel.estimates)} runs"
    counts = sorted({each.seeds for each in panel.estimates})
    return seeds_name(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
