"""The name and the colour of a method, the same in every table and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Okabe and Ito's colours, told apart by everybody, and two of Tol's.
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, OLIVE, PURPLE, TEAL = COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933",
    "#5D3A9B", "#44AA99",
)  # fmt: skip
GREY = "#777777"


@dataclass(frozen=True)
class Look:
    """How a method appears: its name in print, and its colour."""

    name: str
    colour: str


LOOKS: Mapping[str, Look] = {
    "gapsl": Look("GAPSL", BLUE),
    "sfl": Look("SFL", GREEN),
    "papsl": Look("PAPSL", PURPLE),
    "sfl-v2": Look("SFL v2", TEAL),
    "epsl": Look("EPSL", PINK),
    "vanilla": Look("vanilla SL", OLIVE),
    "psl": Look("PSL", ORANGE),
    "frozen": Look("frozen", SKY),
    "central": Look("central", BLACK),
    "recommended": Look("recommended", VERMILION),
}


def printed_name(label: str) -> str:
    """Return what a method, or a label of somebody's own, is called in print."""
    return LOOKS[label].name if label in LOOKS else label


def shade(colour: str, variant: int) -> str:
    """Return a colour for the next curve of the same method: as it is, lighter and darker in turn."""
    share = (0.0, 0.45, -0.4, 0.7, -0.7)[variant % 5]
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    mixed = (part + share * (255 - part) if share > 0 else part * (1 + share) for part in parts)
    return "#" + "".join(f"{round(part):02X}" for part in mixed)


def looks_of(labels: Iterable[str]) -> dict[str, Look]:
    """Return how each label of a figure looks; what is not a known method gets a colour that is left."""
    found = {label: LOOKS.get(label) for label in labels}
    taken = {look.colour for look in found.values() if look is not None}
    left = [colour for colour in COLOURS if colour not in taken] or [GREY]
    others = [label for label, look in found.items() if look is None]
    new = {label: Look(label, left[i % len(left)]) for i, label in enumerate(others)}
    return {label: look or new[label] for label, look in found.items()}
