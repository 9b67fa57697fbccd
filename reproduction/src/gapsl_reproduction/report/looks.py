"""How each line looks, the same in every figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapsl.analysis.plots import COLOURS

BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, OLIVE = COLOURS


@dataclass(frozen=True)
class Look:
    """A colour, a marker and a way of drawing lines."""

    colour: str
    marker: str = "o"
    dashes: str = "-"


LOOKS: Mapping[str, Look] = {
    "gapsl": Look(BLUE, "o"),
    "sfl": Look(GREEN, "s"),
    "epsl": Look(PINK, "^"),
    "vanilla": Look(OLIVE, "v"),
    "psl": Look(ORANGE, "D"),
    "frozen": Look(SKY, "P", "--"),
    "central": Look(BLACK, "X", ":"),
    "recommended": Look(VERMILION, "*"),
    # Paler than what they take a part away from.
    "non-lgi": Look("#66A9D1", "s"),
    "rand-lgi": Look("#B8D8EA", "^"),
    "non-gda": Look("#66A9D1", "s"),
    "rand-gda": Look("#B8D8EA", "^"),
    "psl prior": Look("#F2C879", "D"),
    "recommended unled": Look("#EFA06B", "h"),
    "single": Look("#888888", "o"),
}
ADAPTIVE = LOOKS["gapsl"]

# For what has an order: devices, ratios, thresholds; from dark to bright, none too bright on white.
ORDERED = (
    *("#440154", "#482878", "#3E4A89", "#31688E", "#26828E"),
    *("#1F9E89", "#35B779", "#6DCD59", "#B4C92B", "#E0B000"),
)
MARKERS = "osD^v<>PX*"


def look_of(line: str) -> Look:
    """Return how a line looks."""
    return LOOKS.get(line) or LOOKS.get(line.partition(" ")[2]) or Look("#888888")


def ordered_look(index: int, count: int) -> Look:
    """Return the look of one of several in an order."""
    step = index * (len(ORDERED) - 1) / max(count - 1, 1)
    return Look(ORDERED[round(step)], MARKERS[index % len(MARKERS)])
